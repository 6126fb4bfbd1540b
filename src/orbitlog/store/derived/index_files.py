"""Index files: messages by key, in hash tables that are filled one after the other.

Keys are put in log order; a full file may end between two keys of one message. Only the last file is written to. A
full file is synced before the next one is created, so after a crash only the last file can be invalid: it is cut back
to the keys known to be durable, or rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.errors import DiskFull, FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.index_layout import (
    INDEX_ENTRY,
    INDEX_HEADER,
    INDEX_SLOT,
    IndexHeader,
    IndexLayout,
    decode_header,
    encode_empty_header,
    header_after,
    time_diff_seconds,
)
from orbitlog.store.log.segments import new_file
from orbitlog.storefiles.disk import Disk, MappedFile

if TYPE_CHECKING:
    from orbitlog.kernels.dispatch import DispatchColumns

_ALLOCATE_BYTES = 1 << 20
_NAMED_SECONDS_MAX = 100 * 365 * 86_400  # a damaged timestamp must not become a file name that no later one can follow
_ASIDE = ".aside"
_PACK_ENTRY = INDEX_ENTRY.struct.pack
_UNPACK_ENTRY = INDEX_ENTRY.struct.unpack
_PACK_SLOT = INDEX_SLOT.struct.pack
_PACK_HEADER = INDEX_HEADER.struct.pack
_PACK_ENTRY_INTO = INDEX_ENTRY.struct.pack_into
_PACK_SLOT_INTO, _UNPACK_SLOT_FROM = INDEX_SLOT.struct.pack_into, INDEX_SLOT.struct.unpack_from
_SLOTS_POSITION = INDEX_HEADER.size_bytes
_PLAIN_DIFF_MS = 2**40  # far below the limit of the field for seconds since the first message
assert (INDEX_SLOT.size_bytes, INDEX_ENTRY.size_bytes) == (4, 20)


class IndexFile:
    """One index file; its header is kept in memory and written with each key, or after `put_many` by `settle`."""

    def __init__(self, name: str, file: MappedFile, layout: IndexLayout, *, after: IndexHeader | None = None) -> None:
        self.name = name
        self.file = file
        file.expect_scattered()
        self._layout = layout
        header = decode_header(file.read(0, INDEX_HEADER.size_bytes))
        self._slot_count, self._entry_count = layout.slot_count, layout.entry_count
        self._allocated_to = 0
        self._edited: memoryview | None = None
        if after is not None and header.key_count == 0:
            # Affects only the time of the first entry; needed to write the same bytes as Java.
            header = header_after(after)
            self._ensure_allocated(INDEX_HEADER.size_bytes)
            file.write(0, encode_empty_header(header))
        self._set_header(header)

    def _set_header(self, header: IndexHeader) -> None:
        # Plain numbers: creating a header object for each key would cost more than everything else.
        self._begin_ms, self._end_ms = header.begin_timestamp_ms, header.end_timestamp_ms
        self._begin_offset, self._end_offset = header.begin_physical_offset, header.end_physical_offset
        self._slots_used, self._next_entry = header.hash_slot_count, header.index_count

    @property
    def _numbers(self) -> tuple[int, ...]:
        """The header's fields in their order."""
        return self._begin_ms, self._end_ms, self._begin_offset, self._end_offset, self._slots_used, self._next_entry

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(*self._numbers)

    @property
    def is_full(self) -> bool:
        return self._next_entry >= self._layout.entry_count

    @property
    def is_sound(self) -> bool:
        """Return whether the header is plausible: its last entry exists and belongs to the message that it names."""
        number = self._next_entry - 1
        if not 0 < number < self._layout.entry_count:
            return number == 0
        return self.entry_offset(number) == self._end_offset

    def put(self, key_hash: int, physical_offset: int, store_timestamp_ms: int) -> None:
        """Put one key; the file must not be full."""
        self.settle()
        layout, file, number = self._layout, self.file, self._next_entry
        slot_position = layout.slot_position(key_hash)
        entry_position = layout.entry_position(number)
        self._ensure_allocated(entry_position + INDEX_ENTRY.size_bytes)
        previous = int.from_bytes(file.read(slot_position, 4), "big", signed=True)
        if not 0 < previous <= number:
            previous = 0
            self._slots_used += 1
        diff = time_diff_seconds(store_timestamp_ms, self._begin_ms)
        file.write(entry_position, _PACK_ENTRY(key_hash, physical_offset, diff, previous))
        file.write(slot_position, _PACK_SLOT(number))
        if number <= 1:
            self._begin_ms, self._begin_offset = store_timestamp_ms, physical_offset
        self._end_ms, self._end_offset, self._next_entry = store_timestamp_ms, physical_offset, number + 1
        self._write_header()

    def put_many(self, key_hashes: Sequence[int], physical_offset: int, store_timestamp_ms: int) -> bool:
        """Fast path: put the keys of one message if a copy is enough; return False, with none put, if they need `put`.

        The view of the file stays open, and its header stale, until `settle`.
        """
        number, count = self._next_entry, len(key_hashes)
        entry_position = _SLOTS_POSITION + self._slot_count * 4 + number * 20
        if number <= 1 or number + (count or 1) > self._entry_count or entry_position + count * 20 > self._allocated_to:
            return False
        edited = self._edited
        if edited is None:
            edited = self._edited = self.file.edit(0, self._allocated_to)
        slot_count, slots_used = self._slot_count, self._slots_used
        since_begin_ms = store_timestamp_ms - self._begin_ms
        if 0 <= since_begin_ms < _PLAIN_DIFF_MS and self._begin_ms > 0:
            diff = since_begin_ms // 1000
        else:
            diff = time_diff_seconds(store_timestamp_ms, self._begin_ms)
        for key_hash in key_hashes:
            slot_position = _SLOTS_POSITION + key_hash % slot_count * 4
            (previous,) = _UNPACK_SLOT_FROM(edited, slot_position)
            if not 0 < previous <= number:
                previous = 0
                slots_used += 1
            _PACK_ENTRY_INTO(edited, entry_position, key_hash, physical_offset, diff, previous)
            _PACK_SLOT_INTO(edited, slot_position, number)
            number += 1
            entry_position += 20
        if count:
            self._slots_used, self._next_entry = slots_used, number
            self._end_ms, self._end_offset = store_timestamp_ms, physical_offset
        return True

    def settle(self) -> None:
        """Release the view that `put_many` opened, and write the header."""
        if self._edited is not None:
            self._edited.release()
            self._edited = None
            self._write_header()

    def _write_header(self) -> None:
        self.file.write(0, _PACK_HEADER(*self._numbers))

    def put_bulk(self, columns: DispatchColumns, row: int, key: int) -> tuple[int, int]:
        """Put keys from number `key` of `row` on; return the row and key at which a new file is needed."""
        from orbitlog.kernels.arrays import np
        from orbitlog.kernels.index_build import put_keys

        layout = self._layout
        last_entry = min(self._next_entry + len(columns.key_hashes) - key, layout.entry_count)
        self._ensure_allocated(layout.entry_position(last_entry))
        state = np.array(self._numbers, np.int64)
        with self.file.edit(0, self._allocated_to) as edited:
            address = np.frombuffer(edited, np.uint8).ctypes.data
            row, key = put_keys(  # type: ignore[no-untyped-call]
                columns, row, key, address, layout.slot_count, layout.entry_count, state
            )
        self._set_header(IndexHeader(*state.tolist()))
        if self._next_entry > 1:
            self._write_header()
        return int(row), int(key)

    def _ensure_allocated(self, stop: int) -> None:
        if stop > self._allocated_to:
            target = min(-(-stop // _ALLOCATE_BYTES) * _ALLOCATE_BYTES, self._layout.file_bytes)
            self.file.allocate(self._allocated_to, target)
            self._allocated_to = target

    def follow(self, header: IndexHeader | None = None) -> None:
        """Advance to what another process has put: up to the header that it published, or all of the file."""
        self._set_header(header or decode_header(self.file.read(0, INDEX_HEADER.size_bytes)))

    def cut_to(self, header: IndexHeader) -> None:
        """Remove keys that a killed process put after those of `header`."""
        from orbitlog.store.derived.index_repair import cut_index_file

        self._ensure_allocated(max(self._layout.entry_position(header.index_count), self.file.data_end()))
        cut_index_file(self.file, self._layout, header)
        self._set_header(header)

    def header_with(self, key_count: int, end_timestamp_ms: int) -> IndexHeader | None:
        """Return the header that the file had with `key_count` keys; None if its entries are invalid."""
        from orbitlog.store.derived.index_repair import header_with

        return header_with(self.file, self._layout, self.header, key_count, end_timestamp_ms)

    def entry_offset(self, number: int) -> int:
        """Return the physical offset in an entry."""
        raw = self.file.read(self._layout.entry_position(number), INDEX_ENTRY.size_bytes)
        return int(_UNPACK_ENTRY(raw)[1])

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield the physical offsets of entries with that hash and a time in the window, newest first.

        None is yielded for every other entry of the chain, so that the caller can end or interrupt a long search.
        """
        header = self.header
        number = int.from_bytes(self.file.read(self._layout.slot_position(key_hash), 4), "big", signed=True)
        # Not limited by the header: a reader in another process may see a slot before the header.
        while 0 < number < self._layout.entry_count:
            position = self._layout.entry_position(number)
            found_hash, physical_offset, diff, previous = _UNPACK_ENTRY(
                self.file.read(position, INDEX_ENTRY.size_bytes)
            )
            stored_ms = header.begin_timestamp_ms + diff * 1000  # cut to seconds: up to 999 ms early
            is_match = found_hash == key_hash and begin_ms <= stored_ms <= end_ms
            yield physical_offset if is_match else None
            if previous >= number:
                return  # a damaged chain would never end
            number = previous


@dataclass(frozen=True, slots=True)
class IndexBoundary:
    """The next key to put: number `skip_keys` of the first message at or after `physical_offset`."""

    physical_offset: int
    skip_keys: int


class IndexFiles:
    """All index files of a store, oldest first."""

    def __init__(self, disk: Disk, root: Path, layout: IndexLayout, *, writable: bool = True) -> None:
        self._disk = disk
        self._directory = root / tree.INDEX
        self._layout = layout
        self._writable = writable
        self._files: list[IndexFile] = []
        self._odd_sized: list[str] = []

    def load(self, empty_files: list[Path] | None = None) -> None:
        """Open files of the right size that are not open yet; remember the names of others, also of damaged ones.

        An empty file is removed, or added to `empty_files`: a crash left it before it got its size, and its name is
        needed for the next file.
        """
        known = {file.name for file in self._files}
        self._odd_sized = []
        for entry in self._disk.list_directory(self._directory):
            if not tree.parse_index_file_name(entry.name) or entry.name in known:
                continue
            path = self._directory / entry.name
            if entry.size_bytes == self._layout.file_bytes:
                file = self._disk.open_file(path, writable=self._writable)
                try:
                    self._files.append(IndexFile(entry.name, file, self._layout))
                except FormatError:  # an invalid header: rebuilt from the log, as is one of another size
                    file.close()
                    self._odd_sized.append(entry.name)
            elif entry.size_bytes == 0 and empty_files is not None:
                empty_files.append(path)
            elif entry.size_bytes == 0 and self._writable:
                self._disk.remove_file(path)
            elif entry.size_bytes and not entry.is_directory:
                self._odd_sized.append(entry.name)

    def __iter__(self) -> Iterator[IndexFile]:
        return iter(self._files)

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def file_count(self) -> int:
        return len(self._files)

    def file(self, number: int) -> IndexFile:
        return self._files[number]

    def find_key(self, key_number: int) -> tuple[int | None, int]:
        """Return the file that contains the key of that number, counted from 1, and the key's number in it.

        None if no file contains it, or if it fills one: a message without keys may have created the next file.
        """
        for number, file in enumerate(self._files):
            if 0 < key_number <= file.header.key_count and key_number < self._layout.capacity:
                return number, key_number
            key_number -= file.header.key_count
        return None, 0

    @property
    def complete_timestamp_ms(self) -> int:
        """The end timestamp of the last full file, which is durable."""
        full = [file.header.end_timestamp_ms for file in self._files if file.is_full]
        return full[-1] if full else 0

    @property
    def key_count(self) -> int:
        return sum(file.header.key_count for file in self._files)

    def put(self, key_hashes: Sequence[int], physical_offset: int, store_timestamp_ms: int) -> None:
        """Put the keys of a message; if the last file is full, a message without keys creates the next one, as in Java.

        Callers call `settle` after a run of messages.
        """
        if self._files and self._files[-1].put_many(key_hashes, physical_offset, store_timestamp_ms):
            return
        self._make_room(store_timestamp_ms)
        for key_hash in key_hashes:
            self._make_room(store_timestamp_ms)
            self._files[-1].put(key_hash, physical_offset, store_timestamp_ms)

    def settle(self) -> None:
        """Write the header of the last file if it is stale."""
        if self._files:
            self._files[-1].settle()

    def put_bulk(self, columns: DispatchColumns) -> None:
        """Put the keys of many messages with a kernel; the bytes are those of `put`."""
        row = key = 0
        while row < len(columns.physical_offset):
            self._make_room(int(columns.store_timestamp_ms[row]))
            row, key = self._files[-1].put_bulk(columns, row, key)

    def _make_room(self, store_timestamp_ms: int) -> None:
        if not self._files or self._files[-1].is_full:
            self._begin(store_timestamp_ms)

    def _begin(self, store_timestamp_ms: int) -> None:
        after = None
        if self._files:
            self._files[-1].settle()
            self._files[-1].file.sync()
            after = self._files[-1].header
        else:
            self._disk.make_directory(self._directory)
        name = self._next_name(store_timestamp_ms)
        file = new_file(self._disk, self._directory / name, self._layout.file_bytes)
        try:
            self._files.append(IndexFile(name, file, self._layout, after=after))
        except DiskFull:
            file.close()
            self._disk.remove_file(self._directory / name)  # the next try needs the name
            raise

    def _next_name(self, store_timestamp_ms: int) -> str:
        """Name a file after the store timestamp of its first message, or later: names must be new and ascending."""
        seconds = min(max(store_timestamp_ms / 1000, 0), _NAMED_SECONDS_MAX)
        made_at = datetime.fromtimestamp(seconds)  # local time, as Java has it
        last = tree.parse_index_file_name(self._files[-1].name) if self._files else None
        if last is not None and made_at <= last:
            made_at = last + timedelta(milliseconds=1)
        return tree.index_file_name(made_at)

    def sync(self) -> None:
        """Sync the last file; all others are durable."""
        if self._files:
            self._files[-1].file.sync()

    def files_before(self, log_end: int) -> int:
        """Count the files before the first one that is damaged or has a key of a message that the log has lost."""
        for number, file in enumerate(self._files):
            if not file.is_sound or file.header.end_physical_offset >= log_end:
                return number
        return len(self._files)

    def drop_before(self, physical_offset: int) -> int:
        """Remove files whose last key belongs to a record before that offset, never the last; return their number."""
        count = 0
        while len(self._files) > 1 and self._files[0].header.end_physical_offset < physical_offset:
            self._disk.remove_file(self._directory / self._files[0].name)
            self._files.pop(0).file.close()
            self._disk.sync_directory(self._directory)
            count += 1
        return count

    @property
    def tail(self) -> tuple[int, IndexHeader]:
        """The last file's name as a number, or 0 without a file, and its header."""
        if not self._files:
            return 0, IndexHeader()
        return int(self._files[-1].name), self._files[-1].header

    def follow(self, tail: tuple[int, IndexHeader]) -> None:
        """Advance to what another process has put, up to the tail that it published."""
        number, header = tail
        last_name = self._files[-1].name if self._files else ""
        stale = len(self._files) - 1
        if number and int(last_name or 0) < number:
            for entry in self._disk.list_directory(self._directory):
                if tree.parse_index_file_name(entry.name) and last_name < entry.name and int(entry.name) <= number:
                    file = self._disk.open_file(self._directory / entry.name, writable=self._writable)
                    self._files.append(IndexFile(entry.name, file, self._layout))
        for full in self._files[max(stale, 0) : -1]:
            full.follow()
        if self._files and int(self._files[-1].name) == number:
            self._files[-1].follow(header)

    def cut_to(self, tail: tuple[int, IndexHeader]) -> None:
        """Remove keys and files that a killed process added after the tail that it published last."""
        number, header = tail
        while self._files and int(self._files[-1].name) > number:
            self._files.pop().file.close()
        begun = [
            entry.name
            for entry in self._disk.list_directory(self._directory)
            if tree.parse_index_file_name(entry.name) and int(entry.name) > number
        ]
        for name in reversed(begun):
            self._disk.remove_file(self._directory / name)
        if begun:
            self._disk.sync_directory(self._directory)
        if self._files:
            self._files[-1].cut_to(header)

    def set_aside(self, number: int) -> None:
        """Rename the files from that number on: they are rebuilt from the log, and removed only then."""
        count = len(self._files)
        while len(self._files) > max(number, 0):
            file = self._files.pop()  # the last first: a crash then leaves no gap
            file.file.close()
            self._disk.rename_file(self._directory / file.name, file.name + _ASIDE)
        if len(self._files) < count:
            self._disk.sync_directory(self._directory)

    @property
    def odd_sized_count(self) -> int:
        """The number of files that other values of maxHashSlotNum and maxIndexNum gave their size."""
        return len(self._odd_sized)

    def set_aside_odd_sized(self) -> None:
        """Rename the files of another size and all that follow the first of them: keys are put in log order."""
        if not self._odd_sized:
            return
        first = min(self._odd_sized)
        self.set_aside(sum(file.name < first for file in self._files))
        for name in sorted(self._odd_sized, reverse=True):
            self._disk.rename_file(self._directory / name, name + _ASIDE)
        self._odd_sized = []
        self._disk.sync_directory(self._directory)

    def discard_aside(self) -> None:
        """Remove renamed files, of this recovery or of one that did not end."""
        aside = [entry.name for entry in self._disk.list_directory(self._directory) if entry.name.endswith(_ASIDE)]
        for name in aside:
            self._disk.remove_file(self._directory / name)
        if aside:
            self._disk.sync_directory(self._directory)

    def boundary(self) -> IndexBoundary:
        """Return the next key to put after the existing files."""
        if not self._files:
            return IndexBoundary(0, 0)
        last = self._files[-1]
        end = last.header.end_physical_offset
        keys = _keys_at_end(last, end)
        if keys == last.header.index_count - 1 and len(self._files) > 1:
            keys += _keys_at_end(self._files[-2], end)  # a message with many keys may have begun the last file
        return IndexBoundary(end, keys)

    def close(self) -> None:
        for file in self._files:
            file.file.close()


def _keys_at_end(file: IndexFile, physical_offset: int) -> int:
    """Return how many of the last keys of a file are those of the message at an offset."""
    last = number = file.header.index_count - 1
    while number > 0 and file.entry_offset(number) == physical_offset:
        number -= 1
    return last - number
