"""Write identity: one partition of one epoch, the same in each attempt; marks and message ids follow from it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriteIdentity:
    """One partition of one epoch of one write."""

    write_id: str
    epoch: int
    partition: int

    @property
    def text(self) -> str:
        return f"{self.write_id}/{self.epoch}/{self.partition}"
