"""Replica log: offsets and epochs of one member's CommitLog, as its state machine knows them."""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.replication.group.epoch_history import EpochHistory


@dataclass(slots=True)
class ReplicaLog:
    """Offsets of a log: `start` <= `confirmed_to` <= `end`.

    With `acks_flushed` a member reports, and a master counts for itself, only bytes that a power cut cannot take.
    """

    history: EpochHistory
    start: int
    end: int
    flushed_to: int
    confirmed_to: int
    acks_flushed: bool = False

    @property
    def reported_to(self) -> int:
        """Return the offset up to which this copy counts."""
        return self.flushed_to if self.acks_flushed else self.end

    @property
    def is_empty(self) -> bool:
        return self.end == self.start

    def cut(self, end: int) -> None:
        """Forget everything from `end` on."""
        self.end = end
        self.flushed_to = min(self.flushed_to, end)
        self.confirmed_to = min(self.confirmed_to, end)
