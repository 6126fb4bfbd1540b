"""Log formats: reads a log file whose records are stored back to back, or each after the header of a DLedger entry.

`read_log_at` and `find_in_log` take positions at which a record of the ordinary format or an entry begins; the record
itself is `LogFormat.header_bytes` further. A physical offset in queues, indexes and message ids is that of the record,
so `message_scan.read_at` reads it in both formats. `kernels.record_walk` and `kernels.splits` are the twins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from orbitlog.errors import BadMagic, FormatError, LengthMismatch
from orbitlog.formats.records.dledger import (
    ENTRY_HEADER_BYTES,
    FILE_END,
    FILE_END_MAGIC,
    DLedgerEntry,
    OldFormat,
    decode_entry_header,
    read_entry_at,
)
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_PREFIX, Bytes, Message, decode_message
from orbitlog.formats.records.message_scan import BLANK, MAGIC_BLANK, Damage, LogEnd, SegmentEnd, find_record, read_at

LogFound = Message | SegmentEnd | LogEnd | Damage


class LogFormat(StrEnum):
    """How the records of a log file are stored."""

    ORDINARY = "ordinary"
    DLEDGER = "dledger"

    @property
    def header_bytes(self) -> int:
        """Bytes before each record."""
        return ENTRY_HEADER_BYTES if self is LogFormat.DLEDGER else 0


_MAGIC_POSITION = RECORD_PREFIX.position("magic")
_RECORD = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2)))
_BLANK = re.compile(re.escape(MAGIC_BLANK.to_bytes(4, "big")))
_FILE_END = re.compile(re.escape(FILE_END_MAGIC.to_bytes(4, "big", signed=True)))


def read_log_at(
    buffer: Bytes,
    position: int,
    log_format: LogFormat,
    *,
    base_physical_offset: int | None = None,
    check_crc: bool = True,
) -> LogFound:
    """Return the message, end of the file, zeros or damage at `position`; `buffer` ends with the file."""
    if log_format is LogFormat.ORDINARY:
        return read_at(buffer, position, base_physical_offset=base_physical_offset, check_crc=check_crc)
    match read_entry_at(buffer, position, base_physical_offset=base_physical_offset):
        case DLedgerEntry() as entry:
            return _read_entry(
                buffer, position, entry, checks_offset=base_physical_offset is not None, check_crc=check_crc
            )
        case OldFormat():
            magic = _first_number(buffer, position)
            return Damage(position, BadMagic(field="dledger entry", got=magic, position=position))
        case other:
            return other


def scan_log(
    buffer: Bytes,
    start: int,
    log_format: LogFormat,
    *,
    base_physical_offset: int | None = None,
    check_crc: bool = True,
) -> Iterator[LogFound]:
    """Yield messages from `start` on, then the reason for stopping; no reason if the bytes end with a record."""
    position = start
    while position < len(buffer):
        found = read_log_at(
            buffer, position, log_format, base_physical_offset=base_physical_offset, check_crc=check_crc
        )
        yield found
        if not isinstance(found, Message):
            return
        position += log_format.header_bytes
        position += BLANK.struct.unpack_from(buffer, position)[0]


def find_in_log(
    buffer: Bytes, start: int, log_format: LogFormat, *, base_physical_offset: int, check_crc: bool = True
) -> int | None:
    """Return the first position at or after `start` of a record, an entry or the end of the file, or None."""
    if log_format is LogFormat.ORDINARY:
        return find_record(buffer, start, base_physical_offset=base_physical_offset, check_crc=check_crc)
    entry = _find_entry(buffer, start, base_physical_offset, check_crc=check_crc)
    end = find_file_end(buffer, start, len(buffer) if entry is None else entry, log_format)
    return entry if end is None else end


def find_file_end(buffer: Bytes, start: int, stop: int, log_format: LogFormat) -> int | None:
    """Return the first position in a range of the mark that ends a file; its length reaches to the end of `buffer`."""
    is_dledger = log_format is LogFormat.DLEDGER
    mark, offset = (_FILE_END, 0) if is_dledger else (_BLANK, BLANK.position("magic"))
    layout = FILE_END if is_dledger else BLANK
    size_position = layout.position("size_bytes" if is_dledger else "total_size")
    for match in mark.finditer(buffer, start + offset, stop):
        position = match.start() - offset
        room = len(buffer) - position
        size = bytes(buffer[position + size_position : position + size_position + 4])
        if room >= layout.size_bytes and int.from_bytes(size, "big") == room:
            return position
    return None


def _find_entry(buffer: Bytes, start: int, base: int, *, check_crc: bool) -> int | None:
    search_from = start + ENTRY_HEADER_BYTES + _MAGIC_POSITION
    while match := _RECORD.search(buffer, search_from):
        position = match.start() - _MAGIC_POSITION - ENTRY_HEADER_BYTES
        try:
            entry = decode_entry_header(buffer, position, physical_offset=base + position)
        except FormatError:
            entry = None
        if entry is not None:
            found = _read_entry(buffer, position, entry, checks_offset=True, check_crc=check_crc)
            if isinstance(found, Message):
                return position
        search_from = match.start() + 1
    return None


def _read_entry(
    buffer: Bytes, position: int, entry: DLedgerEntry, *, checks_offset: bool, check_crc: bool
) -> Message | Damage:
    record_position = position + ENTRY_HEADER_BYTES
    size_bytes = _first_number(buffer, record_position) if entry.body_bytes >= BLANK.size_bytes else 0
    if size_bytes != entry.body_bytes:
        mismatch = LengthMismatch(field="dledger entry", stated=entry.body_bytes, counted=size_bytes, position=position)
        return Damage(position, mismatch)
    physical_offset = entry.record_physical_offset if checks_offset else None
    try:
        return decode_message(buffer, record_position, physical_offset=physical_offset, check_crc=check_crc)
    except FormatError as error:
        # Without its traceback and that of its cause: their frames would keep a mapped file from being closed.
        error.__context__ = None
        return Damage(position, error.with_traceback(None))


def _first_number(buffer: Bytes, position: int) -> int:
    return int.from_bytes(bytes(buffer[position : position + 4]), "big", signed=True)
