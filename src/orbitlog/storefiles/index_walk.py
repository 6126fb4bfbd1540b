"""A walk over the entries of one IndexFile that survives damage."""

from __future__ import annotations

from collections.abc import Iterator

from orbitlog.errors import FormatError
from orbitlog.formats.derived.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    IndexEntry,
    IndexHeader,
    IndexLayout,
    decode_header,
    decode_index_entry,
)

_NEVER_WRITTEN = IndexEntry(0, 0, 0, 0)


class IndexWalk:
    """One pass over the bytes of one file; `problems` is complete when the entries have been read."""

    def __init__(self, view: memoryview, layout: IndexLayout) -> None:
        self.layout = layout
        self.header = IndexHeader()
        self.problems: list[str] = []
        self._view = view

    def entries(self) -> Iterator[tuple[int, IndexEntry]]:
        """Yield number and entry of everything that can be an entry."""
        first_bad: int | None = None
        last = self._last_number()
        for number in range(1, last + 1):
            entry = decode_index_entry(self._view, self.layout.entry_position(number))
            if _can_be(entry, number):
                self._note_bad(first_bad, number)
                first_bad = None
                yield number, entry
            elif first_bad is None:
                first_bad = number
        self._note_bad(first_bad, last + 1)

    def _last_number(self) -> int:
        """Return the number of the last entry that header, layout and file all allow."""
        try:
            self.header = decode_header(self._view)
        except FormatError as error:
            self.problems.append(str(error))
            return 0
        size_bytes, layout = len(self._view), self.layout
        if size_bytes != layout.file_bytes:
            self.problems.append(
                f"the file has {size_bytes} bytes, one of {layout.slot_count} slots and"
                f" {layout.entry_count} entries has {layout.file_bytes}"
            )
        if self.header.key_count > layout.capacity:
            position = INDEX_HEADER.position("index_count")
            self.problems.append(
                f"byte {position}: the header counts {self.header.key_count} keys, there is room for {layout.capacity}"
            )
        whole_entries = (size_bytes - layout.entries_position) // INDEX_ENTRY.size_bytes
        return max(min(self.header.key_count, layout.capacity, whole_entries - 1), 0)

    def _note_bad(self, first_bad: int | None, end: int) -> None:
        if first_bad is not None:
            position = self.layout.entry_position(first_bad)
            self.problems.append(f"byte {position}: entries {first_bad} to {end - 1} are invalid; they were skipped")


def _can_be(entry: IndexEntry, number: int) -> bool:
    return (
        entry.key_hash >= 0
        and entry.physical_offset >= 0
        and entry.time_diff_seconds >= 0
        and 0 <= entry.previous_entry < number
        and entry != _NEVER_WRITTEN
    )
