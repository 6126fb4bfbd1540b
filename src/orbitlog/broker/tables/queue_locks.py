"""Queue locks of ordered consumption: one client of a group holds a queue, with a lease of one minute.

Mirrors `RebalanceLockManager`. Pure: callers pass the time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from orbitlog.formats.java import INT_MAX

LEASE_MS = 60_000


class QueueName(NamedTuple):
    """A queue of this broker; without the broker's name, so that another spelling does not make another lock."""

    topic: str
    queue_id: int


@dataclass(slots=True)
class _Lease:
    client_id: str
    until_ms: int


class QueueLocks:
    """Leases by group and queue."""

    def __init__(self) -> None:
        self._leases: dict[str, dict[QueueName, _Lease]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def lock(
        self, group: str, queues: Iterable[QueueName], client_id: str, now_ms: int, *, locks_max: int = INT_MAX
    ) -> list[QueueName]:
        """Lock queues that are free, renew the client's own; return those that it holds now.

        No queue is locked for the first time if there are `locks_max` leases.
        """
        leases = self._leases.setdefault(group, {})
        held = []
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id != client_id and lease.until_ms > now_ms:
                continue
            if lease is None:
                if self._count >= locks_max:
                    continue
                self._count += 1
            leases[queue] = _Lease(client_id, now_ms + LEASE_MS)
            held.append(queue)
        if not leases:
            del self._leases[group]
        return held

    def unlock(self, group: str, queues: Iterable[QueueName], client_id: str) -> None:
        """Release the queues that the client holds; leases of other clients are unchanged."""
        leases = self._leases.get(group, {})
        for queue in queues:
            lease = leases.get(queue)
            if lease is not None and lease.client_id == client_id:
                del leases[queue]
                self._count -= 1
        if not leases:
            self._leases.pop(group, None)

    def is_held(self, group: str, now_ms: int) -> bool:
        """Return whether any queue of the group is locked: then the group consumes in order."""
        return any(lease.until_ms > now_ms for lease in self._leases.get(group, {}).values())

    def drop_expired(self, now_ms: int) -> None:
        for group, leases in list(self._leases.items()):
            for queue, lease in list(leases.items()):
                if lease.until_ms <= now_ms:
                    del leases[queue]
                    self._count -= 1
            if not leases:
                del self._leases[group]
