"""Decisions: custom before default, most specific resource first, deny before allow, source addresses."""

import pytest

from orbitlog.access.access_decision import decide
from orbitlog.access.access_model import Account, Action, BadPolicy, Need, PolicyEntry, Resource, ResourceKind

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER


def entry(resource, actions=Action.ALL, allowed=True, ips=()):
    return PolicyEntry(Resource.parse(resource), actions, allowed, tuple(ips))


def is_allowed(account, *needs, ip="10.0.0.1"):
    return decide(account, needs, ip).is_allowed


PUB_ORDERS = Need(TOPIC, "Orders", Action.PUB)


@pytest.mark.parametrize(
    ("custom", "default", "allowed"),
    [
        ([], [], False),
        ([entry("Topic:Orders", Action.PUB)], [], True),
        ([entry("Topic:Orders", Action.SUB)], [], False),
        ([entry("Topic:Other")], [], False),
        ([entry("Group:Orders")], [], False),
        ([entry("*")], [], True),
        ([entry("Topic:*")], [], True),
        ([entry("Topic:Ord*")], [], True),
        ([entry("Topic:Orders"), entry("Topic:Ord*", allowed=False)], [], True),
        ([entry("Topic:Orders", allowed=False), entry("Topic:*")], [], False),
        ([entry("Topic:Order*"), entry("Topic:Ord*", allowed=False)], [], True),
        ([entry("Topic:Ord*"), entry("Topic:Order*", allowed=False)], [], False),
        ([entry("*", allowed=False), entry("Topic:*")], [], True),
        ([entry("Topic:Orders"), entry("Topic:Orders", allowed=False)], [], False),
        ([entry("Topic:Orders", allowed=False)], [entry("*")], False),
        ([entry("Topic:Orders", Action.SUB, allowed=False)], [entry("*")], True),
        ([entry("Topic:Orders", ips=["10.0.0.0/8"])], [], True),
        ([entry("Topic:Orders", ips=["192.168.0.1"])], [], False),
        ([entry("Topic:Orders", allowed=False, ips=["192.168.0.1"])], [entry("*")], True),
    ],
)
def test_decision_follows_the_order_of_policies(custom, default, allowed):
    account = Account("u", "secret", custom=tuple(custom), default=tuple(default))

    decision = decide(account, (PUB_ORDERS,), "10.0.0.1")

    assert decision.is_allowed is allowed
    assert decision.need == PUB_ORDERS
    assert decision.reason


def test_every_need_must_be_met():
    account = Account("u", "s", custom=(entry("Topic:Orders"),))

    assert not is_allowed(account, PUB_ORDERS, Need(GROUP, "g", Action.SUB))
    assert is_allowed(account)


def test_super_user_passes_and_disabled_user_does_not():
    assert is_allowed(Account("u", "s", is_super=True), Need(CLUSTER, "c", Action.UPDATE, is_management=True))
    assert not is_allowed(Account("u", "s", is_super=True, is_enabled=False), PUB_ORDERS)


def test_no_policy_grants_management():
    assert not is_allowed(Account("u", "s", custom=(entry("*"),)), Need(CLUSTER, "c", Action.UPDATE, True))


def test_traces_may_be_written_and_not_read_by_every_account():
    assert is_allowed(Account("u", "s"), Need(TOPIC, "RMQ_SYS_TRACE_TOPIC", Action.PUB))
    assert not is_allowed(Account("u", "s"), Need(TOPIC, "RMQ_SYS_TRACE_TOPIC", Action.SUB))


def test_reason_names_the_deciding_entry():
    account = Account("u", "s", custom=(entry("Topic:Ord*", Action.PUB, ips=["10.0.0.0/8"]),))

    decision = decide(account, (PUB_ORDERS,), "10.0.0.1")

    assert decision.reason == "custom policy: Allow Pub on Topic:Ord* from 10.0.0.0/8"
    refused = decide(account, (Need(TOPIC, "Other", Action.PUB),), "10.0.0.1")
    assert refused.reason == "User:u has no permission to access Topic:Other from 10.0.0.1, no matched policies."


@pytest.mark.parametrize("text", ["", "Topic", "Topic:", "Queue:x", "*:x", ":x"])
def test_invalid_resource_is_refused(text):
    with pytest.raises(BadPolicy):
        Resource.parse(text)


@pytest.mark.parametrize("text", ["*", "Topic:*", "Topic:a*", "Group:g", "Cluster:c"])
def test_resource_prints_as_it_is_parsed(text):
    assert str(Resource.parse(text)) == text


def test_account_hides_its_secret():
    assert "secret-1" not in repr(Account("u", "secret-1"))
