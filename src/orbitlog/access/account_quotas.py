"""Quotas of accounts: token buckets of messages and bytes, open connections, and created topics.

A bucket holds the tokens of one second, so that a client may send a second's worth at once. A message takes its tokens
if the bucket is not empty, also if it needs more than are left: the debt delays the next one. So a message larger than
a second's worth is not refused for ever. All arithmetic is in whole thousandths of a token: one token a second is one
thousandth a millisecond. Used in the thread of the event loop alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from orbitlog.access.access_model import Account
from orbitlog.access.access_settings import QuotaLimits
from orbitlog.errors import RequestRefused
from orbitlog.wire.codes import ResponseCode

_PARTS = 1000  # of a token


class TokenBucket:
    """Tokens that arrive at `per_second`; 0 is unlimited."""

    __slots__ = ("_filled_ms", "_level", "per_second")

    def __init__(self, per_second: int, now_ms: int) -> None:
        self.per_second = per_second
        self._level = per_second * _PARTS
        self._filled_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Return after how many milliseconds tokens may be taken; 0 for now."""
        if not self.per_second:
            return 0
        elapsed_ms = now_ms - self._filled_ms
        if elapsed_ms:
            self._filled_ms = now_ms
            if elapsed_ms > 0:  # a clock that is set back gives no tokens, and takes none
                self._level = min(self.per_second * _PARTS, self._level + elapsed_ms * self.per_second)
        return 0 if self._level > 0 else 1 - self._level // self.per_second

    def take(self, count: int) -> None:
        self._level -= count * _PARTS


class AccountQuota:
    """The quotas of one account, and what it has used."""

    __slots__ = ("_bytes", "_messages", "_now_ms", "connections", "limits", "name", "refused_count")

    def __init__(self, name: str, limits: QuotaLimits, now_ms: Callable[[], int]) -> None:
        self.name = name
        self._now_ms = now_ms
        self.connections: set[object] = set()
        self.refused_count = 0
        self.set_limits(limits)

    def set_limits(self, limits: QuotaLimits) -> None:
        """Put other limits in force; the buckets start full."""
        self.limits = limits
        now_ms = self._now_ms()
        self._messages = TokenBucket(limits.messages_per_second or 0, now_ms)
        self._bytes = TokenBucket(limits.bytes_per_second or 0, now_ms)

    def take(self, messages: int, size_bytes: int) -> str | None:
        """Take the tokens of a send; return why it exceeds a quota, and then take none."""
        now_ms = self._now_ms()
        for bucket, unit in ((self._messages, "messages"), (self._bytes, "bytes")):
            wait_ms = bucket.wait_ms(now_ms)
            if wait_ms:
                return (
                    f"[FLOW_CONTROL]system busy: account {self.name} exceeds its quota of {bucket.per_second} {unit} a"
                    f" second; send again in {wait_ms} ms"
                )
        self._messages.take(messages)
        self._bytes.take(size_bytes)
        return None


class AccountQuotas:
    """The quotas of all accounts that have limits."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._quotas: dict[str, AccountQuota] = {}
        self.limits_connections = False
        """Whether an account has a limit of connections: else no request is checked for it."""
        self.topic_owners: dict[str, str] = {}
        """The account that created a topic, for accounts with a limit of topics."""
        self.on_topic_created: Callable[[Mapping[str, str]], None] = _ignore

    def set_accounts(self, accounts: Mapping[str, Account], defaults: QuotaLimits) -> None:
        """Put the limits of accounts in force; used tokens and open connections of unchanged ones stay."""
        quotas = {}
        for name, account in accounts.items():
            # A super user manages the broker: the defaults do not apply to it, its own limits do.
            limits = account.limits if account.is_super else account.limits.over(defaults)
            if limits.is_unlimited:
                continue
            quota = self._quotas.get(name) or AccountQuota(name, limits, self._now_ms)
            if quota.limits != limits:
                quota.set_limits(limits)
            quotas[name] = quota
        for name, quota in self._quotas.items():
            if name not in quotas:
                quota.set_limits(QuotaLimits())  # templates of open connections still refer to it
        self._quotas = quotas
        self.limits_connections = any(quota.limits.connections for quota in quotas.values())

    def of(self, name: str | None) -> AccountQuota | None:
        """Return the quotas of an account; None if it is unlimited."""
        return self._quotas.get(name) if name else None

    def admit_connection(self, name: str, connection: object, on_close: Callable[[Callable[..., None]], None]) -> None:
        """Count a connection at its first request of an account; raise `RequestRefused` over the limit."""
        quota = self.of(name)
        if quota is None or not quota.limits.connections or connection in quota.connections:
            return
        if len(quota.connections) >= quota.limits.connections:
            quota.refused_count += 1
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"[FLOW_CONTROL]system busy: account {name} has {len(quota.connections)} connections, its quota is"
                f" {quota.limits.connections}; close unused ones",
            )
        quota.connections.add(connection)
        on_close(quota.connections.discard)

    def admit_topics(self, name: str | None, new: Collection[str], exists: Callable[[str], bool]) -> None:
        """Record topics that an account is about to create; raise `RequestRefused` over its limit.

        Topics that were deleted do not count. The record is saved first: a crash in between counts a topic that
        does not exist, which ends with the next creation.
        """
        quota = self.of(name)
        if name is None or quota is None or not quota.limits.topics or not new:
            return
        owners = {topic: owner for topic, owner in self.topic_owners.items() if exists(topic)}
        count = sum(owner == name for owner in owners.values())
        if count + len(new) > quota.limits.topics:
            quota.refused_count += 1
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"account {name} has created {count} topics, its quota is {quota.limits.topics}; delete unused ones",
            )
        owners.update(dict.fromkeys(new, name))
        self.on_topic_created(owners)
        self.topic_owners = owners

    def counters(self) -> dict[str, int]:
        """Return how often a quota was reached, by account."""
        return {quota.name: quota.refused_count for quota in self._quotas.values() if quota.refused_count}


def _ignore(_: Mapping[str, str]) -> None:
    return None
