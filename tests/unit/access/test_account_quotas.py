"""Quotas of accounts: buckets in whole numbers, debts, changed limits, connections and topics."""

import pytest

from orbitlog.access.access_model import Account, BadPolicy
from orbitlog.access.access_settings import LIMIT_MAX, NO_LIMITS, QuotaLimits
from orbitlog.access.account_quotas import AccountQuota, AccountQuotas, TokenBucket
from orbitlog.access.user_records import parse_limits
from orbitlog.errors import RequestRefused


class Clock:
    def __init__(self):
        self.ms = 1_000_000

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Clock()


def quotas_of(clock, defaults=NO_LIMITS, **limits):
    quotas = AccountQuotas(clock)
    accounts = {name: Account(name, "secret", limits=limit) for name, limit in limits.items()}
    quotas.set_accounts(accounts, defaults)
    return quotas


def test_bucket_gives_a_seconds_worth_at_once_and_then_its_rate(clock):
    quota = AccountQuota("bob", QuotaLimits(10), clock)

    assert [quota.take(1, 0) is None for _ in range(11)] == [True] * 10 + [False]
    stored = 0
    for _ in range(10_000):
        clock.ms += 1
        stored += quota.take(1, 0) is None
    assert stored == 100
    clock.ms += 10**9
    assert sum(quota.take(1, 0) is None for _ in range(30)) == 10  # never more than a second's worth


def test_message_larger_than_a_seconds_worth_is_stored_and_delays_the_next_one(clock):
    quota = AccountQuota("bob", QuotaLimits(None, 1000), clock)

    assert quota.take(1, 5000) is None
    remark = quota.take(1, 1)
    assert remark == (
        "[FLOW_CONTROL]system busy: account bob exceeds its quota of 1000 bytes a second; send again in 4001 ms"
    )
    clock.ms += 4000
    assert quota.take(1, 1) is not None
    clock.ms += 1
    assert quota.take(1, 1) is None


def test_refused_send_takes_no_tokens(clock):
    quota = AccountQuota("bob", QuotaLimits(5, 100), clock)

    assert quota.take(1, 100) is None
    for _ in range(10):
        assert quota.take(1, 1) is not None
    clock.ms += 1
    assert quota.take(4, 1) is None


def test_clock_that_is_set_back_gives_no_tokens(clock):
    bucket = TokenBucket(1, clock.ms)
    bucket.take(1)

    assert bucket.wait_ms(clock.ms - 5000) == 1
    assert bucket.wait_ms(clock.ms - 4000) == 0


def test_defaults_apply_to_accounts_without_limits_and_not_to_super_users(clock):
    quotas = AccountQuotas(clock)
    accounts = {
        "bob": Account("bob", "s"),
        "ann": Account("ann", "s", limits=QuotaLimits(messages_per_second=0, connections=3)),
        "root": Account("root", "s", is_super=True),
    }
    quotas.set_accounts(accounts, QuotaLimits(7, 0, 1, 0))

    assert quotas.of("bob").limits == QuotaLimits(7, 0, 1, 0)
    assert quotas.of("ann").limits == QuotaLimits(0, 0, 3, 0)
    assert quotas.of("root") is None
    assert quotas.of(None) is quotas.of("eve") is None


def test_unchanged_limits_keep_their_tokens_and_removed_ones_end(clock):
    quotas = quotas_of(clock, bob=QuotaLimits(1))
    bob = quotas.of("bob")
    bob.take(1, 0)
    quotas.set_accounts({"bob": Account("bob", "s", limits=QuotaLimits(1))}, NO_LIMITS)
    assert quotas.of("bob") is bob
    assert bob.take(1, 0) is not None

    quotas.set_accounts({"bob": Account("bob", "s")}, NO_LIMITS)
    assert quotas.of("bob") is None
    assert bob.take(1, 0) is None  # a send template may still refer to it


def test_connections_are_counted_until_they_close(clock):
    quotas = quotas_of(clock, bob=QuotaLimits(connections=2))
    closing = {}

    def admit(connection):
        quotas.admit_connection("bob", connection, lambda callback: closing.setdefault(connection, callback))

    for connection in ("a", "a", "b", "a"):
        admit(connection)
    with pytest.raises(RequestRefused, match="2 connections"):
        admit("c")
    quotas.admit_connection("ann", "c", lambda _: None)
    closing["a"]("a")
    admit("c")
    assert quotas.limits_connections
    assert quotas.counters() == {"bob": 1}


def test_topics_are_counted_until_they_are_deleted(clock):
    quotas = quotas_of(clock, bob=QuotaLimits(topics=2), ann=QuotaLimits(topics=1))
    existing, saved = set(), []
    quotas.on_topic_created = saved.append

    def create(name, *topics):
        quotas.admit_topics(name, topics, existing.__contains__)
        existing.update(topics)

    create("bob", "A", "B")
    create("ann", "C")
    create("root", "D")
    with pytest.raises(RequestRefused, match="created 2 topics, its quota is 2"):
        create("bob", "E")
    existing.remove("A")
    create("bob", "E")
    assert saved[-1] == {"B": "bob", "C": "ann", "E": "bob"}


@pytest.mark.parametrize(
    "fields",
    [[], "x", {"messages": 1}, {"topics": -1}, {"topics": True}, {"topics": "1"}, {"bytesPerSecond": LIMIT_MAX + 1}],
)
def test_invalid_limits_are_refused(fields):
    with pytest.raises(BadPolicy):
        parse_limits(fields)


def test_limits_are_written_as_they_are_read():
    limits = QuotaLimits(1, None, 0, 5)

    assert parse_limits(limits.to_json()) == limits
    assert parse_limits(None) == NO_LIMITS
