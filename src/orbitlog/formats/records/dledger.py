"""A log replicated by DLedger: its entries, its index, and the two text files beside them.

An entry is a 48-byte header and then a CommitLog record; the record's physical offset is the entry's position plus
48, and ConsumeQueues and IndexFiles point to the record. A data file ends with an i32 of -1. Entries after
`committed_index` are not committed yet. A store that was converted to DLedger starts with files in the old format,
which `scan_entries` recognises. Mirrors Java `DLedgerEntryCoder`, `MmapFileList`
and `DLedgerMmapFileStore` (DLedger 0.2 and 0.3 write the same bytes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orbitlog.errors import BadField, BadMagic, FormatError, LengthMismatch, LimitExceeded, Misplaced, Truncated
from orbitlog.formats.java import LONG_MAX, LONG_MIN
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, Bytes
from orbitlog.formats.records.message_scan import MAGIC_BLANK, Damage, LogEnd, SegmentEnd

ENTRY_HEADER = Layout(
    "DLedger entry, header",
    Field("magic", "i32", "1"),
    Field("size_bytes", "i32", "of the entry, this header included"),
    Field("index", "i64", "number of the entry, without gaps"),
    Field("term", "i64", "term of the leader that wrote it"),
    Field("physical_offset", "i64", "where in the log this entry starts"),
    Field("channel", "i32", "not used, 0"),
    Field("chain_crc", "i32", "not used, 0"),
    Field("body_crc", "i32", "not used, 0"),
    Field("body_bytes", "i32", "length of the record that follows"),
)
INDEX_UNIT = Layout(
    "DLedger index unit",
    Field("magic", "i32", "1"),
    Field("physical_offset", "i64", "of the entry's first byte in the log"),
    Field("size_bytes", "i32", "of the entry, its header included"),
    Field("index", "i64", "number of the entry; its unit starts at 32 times this"),
    Field("term", "i64", "term of the entry"),
)
FILE_END = Layout(
    "DLedger data file, end",
    Field("magic", "i32", "-1"),
    Field("size_bytes", "i32", "bytes from here to the end of the file; they are zero"),
)
ENTRY_HEADER_BYTES = ENTRY_HEADER.size_bytes
INDEX_UNIT_BYTES = INDEX_UNIT.size_bytes
FILE_END_BYTES = FILE_END.size_bytes
assert ENTRY_HEADER_BYTES == 48
assert INDEX_UNIT_BYTES == 32
INDEX_FILE_BYTES_DEFAULT = 5 * 1024 * 1024 * INDEX_UNIT_BYTES

ENTRY_MAGIC = 1
FILE_END_MAGIC = -1
_OLD_FORMAT_MAGICS = frozenset((MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


@dataclass(frozen=True, slots=True)
class DLedgerEntry:
    """The header of an entry."""

    index: int
    term: int
    physical_offset: int
    body_bytes: int
    channel: int = 0
    chain_crc: int = 0
    body_crc: int = 0

    @property
    def size_bytes(self) -> int:
        return ENTRY_HEADER_BYTES + self.body_bytes

    @property
    def record_physical_offset(self) -> int:
        """Start of the record inside the entry: the offset in queues, indexes and message ids."""
        return self.physical_offset + ENTRY_HEADER_BYTES


@dataclass(frozen=True, slots=True)
class DLedgerIndexUnit:
    """Position of the entry with a number."""

    index: int
    term: int
    physical_offset: int
    size_bytes: int

    @property
    def end_physical_offset(self) -> int:
        """The log is readable up to here if this is the unit of `committed_index`."""
        return self.physical_offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class OldFormat:
    """Records without entry headers: the store was converted, and `message_scan` reads this file."""

    position: int


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """An entry after `committed_index`: written here, not committed."""

    position: int


DLedgerFound = DLedgerEntry | SegmentEnd | LogEnd | Damage | OldFormat


def encode_entry_header(entry: DLedgerEntry) -> bytes:
    """Return the 48 bytes before the record."""
    return ENTRY_HEADER.struct.pack(
        ENTRY_MAGIC,
        entry.size_bytes,
        entry.index,
        entry.term,
        entry.physical_offset,
        entry.channel,
        entry.chain_crc,
        entry.body_crc,
        entry.body_bytes,
    )


def decode_entry_header(buffer: Bytes, position: int = 0, *, physical_offset: int | None = None) -> DLedgerEntry:
    """Return the entry at `position`; with `physical_offset` it must state that offset.

    Its record follows at `position + ENTRY_HEADER_BYTES` and is within the buffer.
    """
    available = len(buffer) - position
    if available < ENTRY_HEADER_BYTES:
        raise Truncated(field="dledger entry", needed=ENTRY_HEADER_BYTES, got=available, position=position)
    magic, size, index, term, stated, *rest = ENTRY_HEADER.struct.unpack_from(buffer, position)
    channel, chain_crc, body_crc, body_bytes = rest
    if magic != ENTRY_MAGIC:
        raise BadMagic(field="dledger entry", got=magic, position=position)
    if index < 0 or body_bytes < 0:
        raise BadField(f"is invalid: index {index}, body of {body_bytes}", field="dledger entry", position=position)
    entry = DLedgerEntry(index, term, stated, body_bytes, channel, chain_crc, body_crc)
    if size != entry.size_bytes:
        raise LengthMismatch(field="dledger entry", stated=size, counted=entry.size_bytes, position=position)
    if size > available:
        raise Truncated(field="dledger entry", needed=size, got=available, position=position)
    if physical_offset is not None and stated != physical_offset:
        raise Misplaced(field="dledger entry", stated=stated, actual=physical_offset, position=position)
    return entry


def encode_index_unit(unit: DLedgerIndexUnit) -> bytes:
    return INDEX_UNIT.struct.pack(ENTRY_MAGIC, unit.physical_offset, unit.size_bytes, unit.index, unit.term)


def decode_index_unit(buffer: Bytes, position: int = 0) -> DLedgerIndexUnit | None:
    """Return the index unit at `position`, or None if the file is still blank (all zero)."""
    if len(buffer) - position < INDEX_UNIT_BYTES:
        raise Truncated(
            field="dledger index unit", needed=INDEX_UNIT_BYTES, got=len(buffer) - position, position=position
        )
    magic, physical_offset, size, index, term = INDEX_UNIT.struct.unpack_from(buffer, position)
    if magic == physical_offset == size == index == term == 0:
        return None
    if magic != ENTRY_MAGIC:
        raise BadMagic(field="dledger index unit", got=magic, position=position)
    if physical_offset < 0 or size < ENTRY_HEADER_BYTES or index < 0:
        problem = f"is invalid: entry {index} at {physical_offset} of {size} bytes"
        raise BadField(problem, field="dledger index unit", position=position)
    return DLedgerIndexUnit(index, term, physical_offset, size)


def encode_file_end(room: int) -> bytes:
    """Return all bytes that end a data file with `room` bytes left; Java zeroes the rest."""
    assert room >= FILE_END_BYTES
    return FILE_END.struct.pack(FILE_END_MAGIC, room).ljust(room, b"\0")


def read_entry_at(buffer: Bytes, position: int, *, base_physical_offset: int | None = None) -> DLedgerFound:
    """Return the entry, end, zeros or damage at `position` of a data file; `buffer` ends with the file."""
    room = len(buffer) - position
    if room >= FILE_END_BYTES:
        magic, size = FILE_END.struct.unpack_from(buffer, position)
        if size & 0xFFFFFFFF in _OLD_FORMAT_MAGICS:
            return OldFormat(position)
        if magic == FILE_END_MAGIC and size == room:
            return SegmentEnd(position, size)
        if magic == FILE_END_MAGIC:
            error = LengthMismatch(field="dledger file end", stated=size, counted=room, position=position)
            return Damage(position, error)
        if magic == size == 0:
            return LogEnd(position)
    physical_offset = None if base_physical_offset is None else base_physical_offset + position
    try:
        return decode_entry_header(buffer, position, physical_offset=physical_offset)
    except FormatError as error:
        # Without its traceback: its frames would keep a mapped file from being closed.
        return Damage(position, error.with_traceback(None))


def scan_entries(
    buffer: Bytes, start: int = 0, *, base_physical_offset: int | None = None, committed_index: int | None = None
) -> Iterator[tuple[int, DLedgerFound | Uncommitted]]:
    """Yield position and entry from `start` on, then the reason for stopping; no reason if the bytes just end.

    Numbers must be consecutive and terms must not fall. With `committed_index` the scan stops after that entry.
    """
    position = start
    last: DLedgerEntry | None = None
    while position < len(buffer):
        found = read_entry_at(buffer, position, base_physical_offset=base_physical_offset)
        if not isinstance(found, DLedgerEntry):
            yield position, found
            return
        if committed_index is not None and found.index > committed_index:
            yield position, Uncommitted(position)
            return
        if last is not None and (found.index != last.index + 1 or found.term < last.term):
            problem = f"entry {found.index} of term {found.term} after {last.index} of term {last.term}"
            yield position, Damage(position, BadField(problem, field="dledger entry", position=position))
            return
        yield position, found
        last = found
        position += found.size_bytes


_PROPERTIES_CHARACTERS_MAX = 64 * 1024
_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class DLedgerCheckpoint:
    """The file `checkpoint`: last entry written and last entry committed, up to three seconds ago."""

    end_index: int | None
    committed_index: int | None


@dataclass(frozen=True, slots=True)
class DLedgerTerm:
    """The file `currterm`: the current term of this member, and its vote in it (empty if it has not voted)."""

    term: int
    vote_for: str


# The order of keys is that of `java.util.Properties` since Java 9.
def encode_dledger_checkpoint(checkpoint: DLedgerCheckpoint) -> str:
    pairs = {"committedIndex": checkpoint.committed_index, "endIndex": checkpoint.end_index}
    return "".join(f"{key}={value}\n" for key, value in pairs.items() if value is not None)


def decode_dledger_checkpoint(text: str) -> DLedgerCheckpoint:
    properties = _read_properties(text, "dledger checkpoint")
    return DLedgerCheckpoint(
        end_index=_long(properties.get("endIndex"), "endIndex"),
        committed_index=_long(properties.get("committedIndex"), "committedIndex"),
    )


def encode_dledger_term(term: DLedgerTerm) -> str:
    return f"voteLeader={term.vote_for}\ncurrTerm={term.term}\n"


def decode_dledger_term(text: str) -> DLedgerTerm:
    properties = _read_properties(text, "dledger currterm")
    term = _long(properties.get("currTerm"), "currTerm")
    return DLedgerTerm(term=term or 0, vote_for=properties.get("voteLeader", ""))


def _read_properties(text: str, field: str) -> dict[str, str]:
    """Read `key=value` lines as `Properties.load` does for text without escapes."""
    if len(text) > _PROPERTIES_CHARACTERS_MAX:
        raise LimitExceeded(field=field, limit=_PROPERTIES_CHARACTERS_MAX, got=len(text))
    properties: dict[str, str] = {}
    for line in re.split(r"[\r\n]+", text):
        if line.strip() and line.lstrip()[0] not in "#!":
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip()
    return properties


def _long(text: str | None, field: str) -> int | None:
    if not text:
        return None
    if not _NUMBER.fullmatch(text) or not LONG_MIN <= int(text) <= LONG_MAX:
        raise BadField(f"{text[:40]!r} is not a 64-bit number", field=field)
    return int(text)
