"""A walk over one ConsumeQueue, file by file, that survives damage.

A unit that was never written is zero; zeros before other units are damage, zeros alone are the queue's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orbitlog.errors import FormatError
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, QueueEntry, decode_entry
from orbitlog.storefiles.damage import DamagedRange, DamageList
from orbitlog.storefiles.mapped_view import first_written, mapped_view
from orbitlog.storefiles.store_files import OffsetFile


class QueueWalk:
    """One pass over the files of one queue, in order; `file_bytes` is the size that each should have."""

    def __init__(self, files: Sequence[OffsetFile], file_bytes: int, *, start: int = 0) -> None:
        self._file_bytes = file_bytes
        self._start_byte = start * ENTRY_BYTES
        self._files = [file for file in files if file.base + max(file_bytes, file.size_bytes) > self._start_byte]
        self._damage = DamageList("queue offset", unit_bytes=ENTRY_BYTES)

    @property
    def damage(self) -> list[DamagedRange]:
        """What could not be read so far, in the order of the queue."""
        return self._damage.ranges

    def units(self) -> Iterator[tuple[int, QueueEntry]]:
        """Yield queue offset and unit, those that only fill room too, from `start` on."""
        expected_base = self._files[0].base if self._files else 0
        for number, file in enumerate(self._files):
            self._damage.note_place(file, expected_base)
            expected_base = file.base + self._file_bytes
            with mapped_view(file.path) as whole, whole[: self._file_bytes] as view:
                yield from self._file_units(view, file, self._files[number + 1 :])

    def _file_units(
        self, view: memoryview, file: OffsetFile, later: Sequence[OffsetFile]
    ) -> Iterator[tuple[int, QueueEntry]]:
        position: int | None = max(self._start_byte - file.base, 0)
        end = len(view) - len(view) % ENTRY_BYTES
        while position is not None and position < end:
            unit = _unit_at(view, position)
            if isinstance(unit, QueueEntry):
                queue_offset = (file.base + position) // ENTRY_BYTES
                if self._damage.waits:
                    self._damage.resume(queue_offset)
                yield queue_offset, unit
                position += ENTRY_BYTES
            else:
                position = self._pass_over(view, file, position, unit, later)
        if file.size_bytes != self._file_bytes:
            reason = f"a queue file has {self._file_bytes} bytes, this one {file.size_bytes}"
            place = min(end, file.size_bytes)
            self._damage.note(file, place, max(file.size_bytes, self._file_bytes), reason)

    def _pass_over(
        self,
        view: memoryview,
        file: OffsetFile,
        position: int,
        error: FormatError | None,
        later: Sequence[OffsetFile],
    ) -> int | None:
        """Skip damage: return the position of the next unit in this file, or None to leave the file."""
        following = _find_unit(view, position + ENTRY_BYTES)
        end = len(view) if following is None else following
        if error is not None:
            self._damage.note(file, position, end, f"{error.field}: {error.problem}")
        elif following is not None or any(_holds_unit(other) for other in later):
            self._damage.note(file, position, end, "zeros where units should be")
        return following


def _unit_at(view: memoryview, position: int) -> QueueEntry | FormatError | None:
    try:
        return decode_entry(view, position)
    except FormatError as error:
        return error


def _find_unit(view: memoryview, start: int) -> int | None:
    position: int | None = start
    while position is not None and position <= len(view) - ENTRY_BYTES:
        unit = _unit_at(view, position)
        if isinstance(unit, QueueEntry):
            return position
        position += ENTRY_BYTES
        if unit is None:
            written = first_written(view, position)
            position = None if written is None else written - written % ENTRY_BYTES
    return None


def _holds_unit(file: OffsetFile) -> bool:
    with mapped_view(file.path) as view:
        return _find_unit(view, 0) is not None
