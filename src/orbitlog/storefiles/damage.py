"""Damaged ranges: bytes that the walks over log and queues had to skip."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from orbitlog.storefiles.store_files import OffsetFile


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """A run of bytes in one file that could not be read; `start` and `resumed_at` count what `counter` names."""

    path: Path
    counter: str
    start: int
    position: int
    size_bytes: int
    reason: str
    resumed_at: int | None = None

    def __str__(self) -> str:
        resumed = "nothing follows" if self.resumed_at is None else f"reading continued at {self.resumed_at}"
        return (
            f"{self.path}: {self.counter} {self.start} (byte {self.position} of the file): {self.reason};"
            f" {self.size_bytes} bytes skipped, {resumed}"
        )


class DamageList:
    """Collects ranges during a walk; `resume` completes them when the next valid record or unit is found."""

    def __init__(self, counter: str, *, unit_bytes: int = 1) -> None:
        self._counter = counter
        self._unit_bytes = unit_bytes
        self._resumed: list[DamagedRange] = []
        self._unresumed: list[DamagedRange] = []

    @property
    def ranges(self) -> list[DamagedRange]:
        return [*self._resumed, *self._unresumed]

    @property
    def waits(self) -> bool:
        """Return whether a range has no end yet."""
        return bool(self._unresumed)

    def note(self, file: OffsetFile, position: int, end: int, reason: str) -> None:
        """Add the bytes from `position` to `end` of a file."""
        self._add(file.path, file.base + position, position, max(end - position, 0), reason)

    def note_place(self, file: OffsetFile, expected_base: int) -> None:
        """Add a range if a file does not follow the previous one."""
        gap = file.base - expected_base
        if gap > 0:
            self._add(file.path, expected_base, 0, gap, f"{gap} bytes before this file are missing")
        elif gap < 0:
            self._add(file.path, file.base, 0, 0, f"this file starts {-gap} bytes before the end of the one before it")

    def _add(self, path: Path, byte: int, position: int, size_bytes: int, reason: str) -> None:
        start = byte // self._unit_bytes
        self._unresumed.append(DamagedRange(path, self._counter, start, position, size_bytes, reason))

    def resume(self, number: int) -> None:
        """Note where reading continued."""
        self._resumed += [replace(damage, resumed_at=number) for damage in self._unresumed]
        self._unresumed.clear()
