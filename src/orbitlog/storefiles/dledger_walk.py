"""DLedger walk: reads a log that DLedger replicates, where every record follows the header of its entry.

A store that was converted starts with segments in the ordinary format; each entry shows which kind it is.
Entries that the members have not agreed upon yet are yielded as well.
"""

from __future__ import annotations

from orbitlog.errors import FormatError, LengthMismatch
from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES, DLedgerEntry, OldFormat, read_entry_at
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.message_scan import Damage, SegmentEnd, find_record, read_at
from orbitlog.storefiles.log_walk import Found, LogWalk


class DLedgerWalk(LogWalk):
    """A `LogWalk` over dledger-*/data, after the segments of commitlog/ where the store was converted."""

    def _read(self, view: memoryview, position: int, base: int) -> Found:
        match read_entry_at(view, position, base_physical_offset=base):
            case DLedgerEntry() as entry:
                return _read_entry(view, position, entry)
            case OldFormat():
                return read_at(view, position, base_physical_offset=base)
            case other:
                return other

    def _find(self, view: memoryview, start: int, base: int) -> int | None:
        search_from = start
        while (position := find_record(view, search_from, base_physical_offset=base)) is not None:
            # A record of the ordinary format, the segment's end, or the record after an entry's header.
            for entry_position in (position - ENTRY_HEADER_BYTES, position):
                if entry_position >= start and isinstance(self._read(view, entry_position, base), Message | SegmentEnd):
                    return entry_position
            search_from = position + 1
        return None

    def _jump(self, view: memoryview, wanted: int) -> int:
        position = 0
        while position < wanted:
            match read_entry_at(view, position):
                case DLedgerEntry() as entry:
                    position += entry.size_bytes
                case OldFormat():
                    return super()._jump(view, wanted)
                case _:
                    break
        return position


def _read_entry(view: memoryview, position: int, entry: DLedgerEntry) -> Found:
    record_position = position + ENTRY_HEADER_BYTES
    try:
        message = decode_message(view, record_position, physical_offset=entry.record_physical_offset)
    except FormatError as error:
        return Damage(position, error)
    size_bytes = int.from_bytes(view[record_position : record_position + 4], "big")
    if size_bytes != entry.body_bytes:
        mismatch = LengthMismatch(field="dledger entry", stated=entry.body_bytes, counted=size_bytes, position=position)
        return Damage(position, mismatch)
    return message
