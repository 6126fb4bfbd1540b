"""Held requests: how many long polls each connection has, and which of them give way when there are too many.

Pulls, pops and notifications share one budget. At the limit, the newest requests of the connection with most of them
give way, at the client address with most of them: a peer that floods the broker displaces its own requests first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from orbitlog.settings.limits import HELD_PER_CONNECTION, HELD_REQUESTS, Limits

# Displaced together: to find the connection with most requests takes a look at all of them.
_DISPLACED_TOGETHER = 1_024
_BUCKET_MS = 1_024


class HeldOwner(Protocol):
    """A connection."""

    @property
    def remote_address(self) -> tuple[str, int]: ...


Displace = Callable[[HeldOwner, int], int]
"""Answers up to that number of a connection's newest requests; returns how many it answered."""


class HeldRequests:
    """Counts held requests by connection."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._total_max = limits[HELD_REQUESTS]
        self._per_connection_max = limits[HELD_PER_CONNECTION]
        self._counts: dict[HeldOwner, int] = {}
        self._displacers: list[Displace] = []
        self.total = 0

    def add_displacer(self, displace: Displace) -> None:
        """Add a table of held requests, whose requests may be displaced."""
        self._displacers.append(displace)

    def admit(self, owner: HeldOwner) -> bool:
        """Count one more held request; return False if it must be answered now."""
        count = self._counts.get(owner, 0)
        if count >= self._per_connection_max:
            self.limits.reach(HELD_PER_CONNECTION)
            return False
        if self.total >= self._total_max:
            self.limits.reach(HELD_REQUESTS)
            greediest = self._greediest()
            if greediest is owner or not self._displace(greediest):
                return False
            count = self._counts.get(owner, 0)
        self._counts[owner] = count + 1
        self.total += 1
        return True

    def release(self, owner: HeldOwner) -> None:
        """Count that a held request was answered or dropped."""
        count = self._counts[owner] - 1
        if count:
            self._counts[owner] = count
        else:
            del self._counts[owner]
        self.total -= 1

    def _greediest(self) -> HeldOwner:
        counts = self._counts
        of_addresses: Counter[str] = Counter()
        for owner, count in counts.items():
            of_addresses[owner.remote_address[0]] += count
        ((address, _),) = of_addresses.most_common(1)
        return max((owner for owner in counts if owner.remote_address[0] == address), key=counts.__getitem__)

    def _displace(self, owner: HeldOwner) -> bool:
        """Displace some of a connection's requests, at most half of them."""
        left = most = min(_DISPLACED_TOGETHER, (self._counts[owner] + 1) // 2)
        for displace in self._displacers:
            left -= displace(owner, left)
            if not left:
                break
        return left < most


T = TypeVar("T")


class HeldIndex(Generic[T]):
    """Held requests of one table by connection, oldest first, and by the time at which they must be answered."""

    def __init__(self) -> None:
        self._by_owner: dict[object, dict[T, None]] = {}
        self._by_time: dict[int, dict[T, int]] = {}

    def add(self, request: T, owner: object, until_ms: int) -> None:
        owned = self._by_owner.get(owner)
        if owned is None:
            owned = self._by_owner[owner] = {}
        owned[request] = None
        bucket = self._by_time.get(until_ms // _BUCKET_MS)
        if bucket is None:
            bucket = self._by_time[until_ms // _BUCKET_MS] = {}
        bucket[request] = until_ms

    def remove(self, request: T, owner: object, until_ms: int) -> None:
        owned, bucket = self._by_owner[owner], self._by_time[until_ms // _BUCKET_MS]
        del owned[request], bucket[request]
        if not owned:
            del self._by_owner[owner]
        if not bucket:
            del self._by_time[until_ms // _BUCKET_MS]

    def of_owner(self, owner: object) -> list[T]:
        return list(self._by_owner.get(owner, ()))

    def newest(self, owner: object, count: int) -> list[T]:
        """Return up to `count` requests of a connection, the newest first."""
        owned = reversed(self._by_owner.get(owner, {}))
        return [request for request, _ in zip(owned, range(count), strict=False)]

    def expired(self, now_ms: int) -> list[T]:
        """Return the requests that must be answered by now: a look at their times, not at all requests."""
        buckets = [bucket for key, bucket in self._by_time.items() if key <= now_ms // _BUCKET_MS]
        return [request for bucket in buckets for request, until_ms in bucket.items() if until_ms <= now_ms]
