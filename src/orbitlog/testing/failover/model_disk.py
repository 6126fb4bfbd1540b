"""Model disk: the log and epoch file of one simulated member. Records have four bytes.

A kill loses nothing that was written; a power cut loses any suffix that was not synced. With `keeps_cut_bytes` a cut is
not durable, as in Apache's 5.5.0: bytes past the new end are found at the next start.
"""

from __future__ import annotations

from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.group.epoch_history import EpochHistory
from orbitlog.replication.group.replica_log import ReplicaLog

RECORD_BYTES = 4


class ModelDisk:
    """What a member finds when it starts."""

    keeps_cut_bytes = False

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced_to = 0
        self.confirmed_to = 0
        self.epochs: tuple[EpochEntry, ...] = ()
        self.kept_tails: list[tuple[int, bytes]] = []
        self.is_new = True
        """Whether nothing was noted yet: the store has never been the member's."""
        self._ghost = bytearray()

    def replace(self) -> None:
        """Lose everything: the machine gets an empty disk."""
        del self.data[:]
        self.synced_to = self.confirmed_to = 0
        self.epochs = ()
        self.kept_tails.clear()
        self.is_new = True
        self._ghost = bytearray()

    def append(self, body: bytes) -> None:
        self.data += body

    def cut(self, end: int) -> None:
        """Remove everything from `end` on, durably."""
        if self.keeps_cut_bytes:
            self._ghost = bytearray(self.data)
        del self.data[end:]
        self.synced_to = min(self.synced_to, end)

    def settle(self) -> int:
        """Cut an incomplete record, sync, and return the end."""
        self.cut(len(self.data) - len(self.data) % RECORD_BYTES)
        self.synced_to = len(self.data)
        return self.synced_to

    def lose_unsynced(self, choice: int) -> None:
        """Lose a suffix that is not synced, as long as the choice selects."""
        end = len(self.data) - choice % (len(self.data) - self.synced_to + 1)
        del self.data[end:]
        self.confirmed_to = min(self.confirmed_to, end)

    def open(self, acks_flushed: bool) -> ReplicaLog:
        """Recover the log: cut an incomplete record and sync."""
        if len(self._ghost) > len(self.data):
            self.data += self._ghost[len(self.data) :]
        self._ghost = bytearray()
        end = self.settle()
        self.confirmed_to = min(self.confirmed_to, end)
        return ReplicaLog(EpochHistory(self.epochs), 0, end, end, self.confirmed_to, acks_flushed)
