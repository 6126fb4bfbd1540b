"""Index of an upgraded store: finds the physical offset from which a broker of 5.4 or later added keys for tags.

Brokers before that put no such keys into the index, and an upgrade leaves their entries as they are. The entries before
the upgrade are plain, those after it have tag keys, and messages without tags look the same in both: a few windows of
entries are looked up in the log, and the boundary is searched between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats.derived.derive import DeriveRules, index_hashes
from orbitlog.formats.derived.index_layout import IndexEntry, IndexLayout, decode_header, decode_index_entry
from orbitlog.settings import store_settings as settings_table
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.inferred_rules import message_at
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles

_WINDOW = 200
_WINDOWS = 32
# Windows without a tagged message that a step of the search passes over, before it takes them for upgraded.
_NEUTRAL_MAX = 20


def without_tags(rules: DeriveRules) -> DeriveRules:
    """Return the rules of a broker that puts no keys for tags into the index."""
    return replace(rules, compat=replace(rules.compat, indexes_tags=False))


def untagged_before(store: StoreFiles, settings: StoreSettings, rules: DeriveRules) -> int:
    """Return the physical offset before which the index has no keys for tags; 0 if it has them throughout."""
    if not rules.compat.indexes_tags or settings.given(settings_table.COMPAT) is not None or not store.segments:
        return 0
    return _Boundary(store, robust_geometry(store, settings).index_layout, rules).search()


class _Boundary:
    """The entries of all index files as one list, and which of them were written before the upgrade."""

    def __init__(self, store: StoreFiles, layout: IndexLayout, rules: DeriveRules) -> None:
        self._store, self._layout = store, layout
        self._tagged, self._plain = rules.compat, without_tags(rules).compat
        self._files = [(file.path, _entry_count(file.path, layout)) for file in store.index_files]
        self._count = sum(count for _, count in self._files)

    def search(self) -> int:
        start = bisect_left(range(self._count), self._store.segments[0].base, key=self._offset_of)
        if start == self._count:
            return 0
        step = max((self._count - start) // _WINDOWS, 1)
        low, high = start, self._count
        for place in reversed(range(start, self._count, step)):
            verdict = self._verdict(place, place + _WINDOW)
            if verdict is False:
                low = place
                break
            if verdict is True:
                high = place
        else:
            return 0
        while high - low > _WINDOW:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_before(middle, high) else (low, middle)
        return self._first_after(low, high + _WINDOW)

    def _is_before(self, place: int, stop: int) -> bool:
        """Return whether entries at this position, or the next ones that show it, were written before the upgrade."""
        for start in range(place, min(stop, place + _NEUTRAL_MAX * _WINDOW), _WINDOW):
            verdict = self._verdict(start, start + _WINDOW)
            if verdict is not None:
                return not verdict
        return False

    def _verdict(self, start: int, stop: int) -> bool | None:
        """Return whether the first message with tags between these entries has them in the index."""
        return next((has_tags for _, has_tags in self._messages(start, stop)), None)

    def _first_after(self, start: int, stop: int) -> int:
        """Return the physical offset of the message that follows the last one without its tags."""
        first = max(start - _WINDOW, 0)
        plain = [physical_offset for physical_offset, has_tags in self._messages(first, stop) if not has_tags]
        later = (entry.physical_offset for entry in self._entries(first, stop))
        return next((offset for offset in later if offset > plain[-1]), 0) if plain else 0

    def _messages(self, start: int, stop: int) -> Iterator[tuple[int, bool]]:
        """Yield the messages with tags whose entries are all in the window, and whether one is for the tags."""
        groups = [
            (physical_offset, [entry.key_hash for entry in entries])
            for physical_offset, entries in groupby(self._entries(start, stop), key=lambda entry: entry.physical_offset)
        ]
        first, last = (0 if start == 0 else 1), (len(groups) if stop >= self._count else len(groups) - 1)
        for physical_offset, hashes in groups[first:last]:
            message = message_at(self._store, physical_offset)
            if message is not None:
                with_tags, plain = index_hashes(message, self._tagged), index_hashes(message, self._plain)
                if with_tags != plain and hashes in (with_tags, plain):
                    yield physical_offset, hashes == with_tags

    def _offset_of(self, place: int) -> int:
        return next(entry.physical_offset for entry in self._entries(place, place + 1))

    def _entries(self, start: int, stop: int) -> Iterator[IndexEntry]:
        before = 0
        for path, count in self._files:
            numbers = range(max(start - before, 0) + 1, min(stop - before, count) + 1)
            if numbers:
                with mapped_view(path) as view:
                    found = [decode_index_entry(view, self._layout.entry_position(number)) for number in numbers]
                yield from found
            before += count


def _entry_count(path: Path, layout: IndexLayout) -> int:
    """Return how many entries a file has; 0 if it cannot be one of this layout."""
    with mapped_view(path) as view:
        try:
            count = decode_header(view).key_count
        except FormatError:
            return 0
        return count if 0 < count <= layout.capacity and len(view) == layout.file_bytes else 0
