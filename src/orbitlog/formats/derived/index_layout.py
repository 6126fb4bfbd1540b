"""The IndexFile: a hash table on disk from `topic#key` to physical offsets.

A header, H slots, N entries. A slot holds the number of its newest entry, an entry the number of the one before
it in the same slot. Entry 0 is never used, so that 0 can mean "none"; a file takes N - 1 keys and then a new one
is begun. Mirrors Java `IndexFile` and `IndexHeader`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace

from orbitlog.errors import BadField, Truncated
from orbitlog.formats.java import INT_MAX, abs_or_zero, divide, string_hash
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

INDEX_HEADER = Layout(
    "IndexFile header",
    Field("begin_timestamp_ms", "i64", "store time of the first message indexed"),
    Field("end_timestamp_ms", "i64", "store time of the last message indexed"),
    Field("begin_physical_offset", "i64", "physical offset of the first message indexed"),
    Field("end_physical_offset", "i64", "physical offset of the last message indexed"),
    Field("hash_slot_count", "i32", "slots in use"),
    Field("index_count", "i32", "number of the next free entry; 0 on disk means 1"),
)
INDEX_SLOT = Layout("IndexFile slot", Field("newest_entry", "i32", "number of the slot's newest entry, 0 for none"))
INDEX_ENTRY = Layout(
    "IndexFile entry",
    Field("key_hash", "i32", "absolute value of Java's hash of `topic#key`"),
    Field("physical_offset", "i64", "start of the record in the CommitLog"),
    Field("time_diff_seconds", "i32", "store time minus the file's begin time"),
    Field("previous_entry", "i32", "number of the entry before it in the same slot, 0 for none"),
)
assert INDEX_HEADER.size_bytes == 40
assert INDEX_ENTRY.size_bytes == 20

SLOT_COUNT_DEFAULT = 5_000_000
ENTRY_COUNT_DEFAULT = 20_000_000
TAGS_KEY_MARK = "T#"


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """Positions in a file of H slots and N entries."""

    slot_count: int = SLOT_COUNT_DEFAULT
    entry_count: int = ENTRY_COUNT_DEFAULT

    def __post_init__(self) -> None:
        if not (0 < self.slot_count <= INT_MAX and 1 < self.entry_count <= INT_MAX):
            raise BadField(f"{self.slot_count} slots, {self.entry_count} entries out of range", field="index layout")

    @property
    def entries_position(self) -> int:
        return INDEX_HEADER.size_bytes + self.slot_count * INDEX_SLOT.size_bytes

    @property
    def file_bytes(self) -> int:
        return self.entries_position + self.entry_count * INDEX_ENTRY.size_bytes

    @property
    def capacity(self) -> int:
        """How many keys the file takes."""
        return self.entry_count - 1

    def slot_position(self, key_hash: int) -> int:
        return INDEX_HEADER.size_bytes + key_hash % self.slot_count * INDEX_SLOT.size_bytes

    def entry_position(self, entry_number: int) -> int:
        return self.entries_position + entry_number * INDEX_ENTRY.size_bytes


@dataclass(frozen=True, slots=True)
class IndexHeader:
    begin_timestamp_ms: int = 0
    end_timestamp_ms: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    @property
    def key_count(self) -> int:
        return self.index_count - 1


@dataclass(frozen=True, slots=True)
class IndexEntry:
    key_hash: int
    physical_offset: int
    time_diff_seconds: int
    previous_entry: int


def index_key(topic: str, key: str) -> str:
    return f"{topic}#{key}"


def tags_index_key(topic: str, tags: str) -> str:
    """The key under which 5.5 also finds a message by its tags."""
    return f"{topic}#{TAGS_KEY_MARK}{tags}"


def key_hash(index_key_text: str) -> int:
    """Hash as the index does: never negative, and 0 for the one hash that has no absolute value."""
    return abs_or_zero(string_hash(index_key_text))


def encode_header(header: IndexHeader) -> bytes:
    return INDEX_HEADER.struct.pack(*astuple(header))


def header_after(before: IndexHeader) -> IndexHeader:
    """Return the header of a file that is begun after another: that one's end is its begin, until a key is put."""
    return IndexHeader(
        begin_timestamp_ms=before.end_timestamp_ms,
        end_timestamp_ms=before.end_timestamp_ms,
        begin_physical_offset=before.end_physical_offset,
        end_physical_offset=before.end_physical_offset,
    )


def encode_empty_header(header: IndexHeader) -> bytes:
    """Return the header of a file with no key yet, whose count of entries Java does not write."""
    assert header.key_count == 0
    return encode_header(replace(header, index_count=0))


def decode_header(buffer: Bytes) -> IndexHeader:
    """Read the header; a file that was never written to reads as empty."""
    _need(buffer, 0, INDEX_HEADER.size_bytes, "index header")
    header = IndexHeader(*INDEX_HEADER.struct.unpack_from(buffer))
    if header.index_count < 0 or header.hash_slot_count < 0:
        raise BadField(
            f"{header.hash_slot_count} slots and {header.index_count} entries in use are invalid", field="index header"
        )
    return header if header.index_count else replace(header, index_count=1)


def encode_index_entry(entry: IndexEntry) -> bytes:
    return INDEX_ENTRY.struct.pack(*astuple(entry))


def decode_index_entry(buffer: Bytes, position: int) -> IndexEntry:
    _need(buffer, position, INDEX_ENTRY.size_bytes, "index entry")
    return IndexEntry(*INDEX_ENTRY.struct.unpack_from(buffer, position))


def time_diff_seconds(store_timestamp_ms: int, begin_timestamp_ms: int) -> int:
    """Seconds between, as the entry keeps them: never negative, 0 while the file has no begin time."""
    if begin_timestamp_ms <= 0:
        return 0
    return min(max(divide(store_timestamp_ms - begin_timestamp_ms, 1000), 0), INT_MAX)


class IndexWriter:
    """Puts keys into the bytes of one IndexFile, exactly as Java's `IndexFile.putKey` does.

    `buffer` is the whole file. A file that follows another starts with that one's end as its begin, which shows in
    the time of its first entry only: the begin is replaced right after it.
    """

    def __init__(
        self, buffer: bytearray | memoryview, layout: IndexLayout, *, after: IndexHeader | None = None
    ) -> None:
        if len(buffer) != layout.file_bytes:
            raise Truncated(field="index file", needed=layout.file_bytes, got=len(buffer))
        self._buffer = buffer
        self._layout = layout
        self.header = decode_header(buffer)
        if after is not None and self.header.key_count == 0:
            self.header = header_after(after)
            buffer[: INDEX_HEADER.size_bytes] = encode_empty_header(self.header)

    @property
    def is_full(self) -> bool:
        return self.header.index_count >= self._layout.entry_count

    def put(self, hashed_key: int, physical_offset: int, store_timestamp_ms: int) -> bool:
        """Add one key; return False if the file is full and the key belongs into the next one."""
        if self.is_full:
            return False
        header, number = self.header, self.header.index_count
        slot_position = self._layout.slot_position(hashed_key)
        (previous,) = INDEX_SLOT.struct.unpack_from(self._buffer, slot_position)
        if not 0 < previous <= number:
            previous = 0
        diff = time_diff_seconds(store_timestamp_ms, header.begin_timestamp_ms)
        position = self._layout.entry_position(number)
        INDEX_ENTRY.struct.pack_into(self._buffer, position, hashed_key, physical_offset, diff, previous)
        INDEX_SLOT.struct.pack_into(self._buffer, slot_position, number)
        is_first = number <= 1
        self.header = IndexHeader(
            begin_timestamp_ms=store_timestamp_ms if is_first else header.begin_timestamp_ms,
            end_timestamp_ms=store_timestamp_ms,
            begin_physical_offset=physical_offset if is_first else header.begin_physical_offset,
            end_physical_offset=physical_offset,
            hash_slot_count=header.hash_slot_count + (previous == 0),
            index_count=number + 1,
        )
        INDEX_HEADER.struct.pack_into(self._buffer, 0, *astuple(self.header))
        return True


_INFERRED_BYTES_MAX = 1024 * 1024 * 1024  # twice Java's default
_CANDIDATES_MAX = 100_000
_COMPARED_BYTES_MAX = 64 * 1024
"""Files with so few keys that several counts fit are compared whole, as only small ones can be."""


def infer_layout(buffer: Bytes) -> IndexLayout | None:
    """Infer slot and entry counts from the file itself; return None if it contains too little.

    Size gives 4H + 20N. The last entry written must hold the header's end offset, and entry 1 its begin offset;
    every slot count for which both hold is tried against the chains. Where several fit (files with very few keys),
    it is the one with only zeros after its last entry; a broker that died may have left one entry there. A file of a
    stranger may be of any size and fit any count: both are limited.
    """
    header = decode_header(buffer)
    standard = IndexLayout()
    if len(buffer) == standard.file_bytes:
        return standard
    if header.key_count == 0 or len(buffer) > _INFERRED_BYTES_MAX:
        return None
    data = bytes(buffer)
    fitting = []
    for slot_count in _candidate_slot_counts(data, header):
        layout = IndexLayout(slot_count, (len(data) - INDEX_HEADER.size_bytes - 4 * slot_count) // 20)
        if header.index_count <= layout.entry_count and _chains_hold(data, header, layout):
            fitting.append(layout)
    ends = [layout.entry_position(header.index_count) for layout in fitting]
    clean = [layout for layout, end in zip(fitting, ends, strict=True) if data.count(0, end) == len(data) - end]
    chosen = clean or fitting
    if len(chosen) > 1 and len(data) <= _COMPARED_BYTES_MAX:
        chosen = [layout for layout in chosen if _slots_follow(data, header, layout)]
    return chosen[0] if len(chosen) == 1 else None


def _candidate_slot_counts(data: bytes, header: IndexHeader) -> list[int]:
    room = len(data) - INDEX_HEADER.size_bytes
    slot_counts_max = (room - 2 * INDEX_ENTRY.size_bytes) // INDEX_SLOT.size_bytes
    remainder = room // INDEX_SLOT.size_bytes % 5
    if room % INDEX_SLOT.size_bytes:
        return []
    offset_raw = header.end_physical_offset.to_bytes(8, "big", signed=True)
    before_last = INDEX_HEADER.size_bytes + (header.index_count - 1) * INDEX_ENTRY.size_bytes + 4
    if not any(offset_raw):
        return list(range(remainder or 5, min(slot_counts_max, 5 * _CANDIDATES_MAX) + 1, 5))
    found = list[int]()
    position = data.find(offset_raw, before_last)
    for _ in range(_CANDIDATES_MAX):
        if position == -1:
            break
        slot_count, rest = divmod(position - before_last, INDEX_SLOT.size_bytes)
        if rest == 0 and 0 < slot_count <= slot_counts_max and slot_count % 5 == remainder:
            found.append(slot_count)
        position = data.find(offset_raw, position + 1)
    return found


def _chains_hold(data: bytes, header: IndexHeader, layout: IndexLayout) -> bool:
    """Check a few entries from both ends: entry 0 is unused, offsets agree with the header, and slots lead to newer
    entries.
    """
    last = header.index_count - 1
    if any(data[layout.entry_position(0) : layout.entry_position(1)]):
        return False
    if decode_index_entry(data, layout.entry_position(1)).physical_offset != header.begin_physical_offset:
        return False
    for number in {*range(1, min(last, 16) + 1), *range(max(1, last - 16), last + 1)}:
        entry = decode_index_entry(data, layout.entry_position(number))
        (newest,) = INDEX_SLOT.struct.unpack_from(data, layout.slot_position(max(entry.key_hash, 0)))
        if entry.key_hash < 0 or not 0 <= entry.previous_entry < number or not number <= newest <= last:
            return False
    return True


def _slots_follow(data: bytes, header: IndexHeader, layout: IndexLayout) -> bool:
    """Return whether links and slots are those that a broker writes that puts these entries into an empty file."""
    slots = dict[int, int]()
    for number in range(1, header.index_count):
        entry = decode_index_entry(data, layout.entry_position(number))
        position = layout.slot_position(entry.key_hash)
        if entry.previous_entry != slots.get(position, 0):
            return False
        slots[position] = number
    written = bytearray(data[: layout.entry_position(0)])
    for position, number in slots.items():
        if INDEX_SLOT.struct.unpack_from(written, position) != (number,):
            return False
        INDEX_SLOT.struct.pack_into(written, position, 0)
    return not any(written[INDEX_HEADER.size_bytes :])


def _need(buffer: Bytes, position: int, size: int, field: str) -> None:
    if position < 0 or len(buffer) - position < size:
        raise Truncated(field=field, needed=size, got=len(buffer) - position, position=position)
