"""Records whose property CRC is wrong although their body's is right: kept, with a CRC made for them as they are.

Something outside the body was damaged, a property or a field of the header. To replace such a record would lose its
body; to leave it would let a Java broker with `forceVerifyPropCRC` delete the log from there on.
"""

from __future__ import annotations

from zlib import crc32

from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.formats.records.message import BODY_CRC_MASK, Message, encode_message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.formats.records.property_crc import ends_with_crc, seal_record
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles


def plan_property_crcs(journal: PlanJournal, store: StoreFiles, start: int, stop: int) -> bool:
    """Plan new CRCs for the records from physical offset `start` to `stop`; False if there is other damage as well."""
    segment = store.segment_at(start)
    if segment is None:
        return False
    resealed: list[Message] = []
    with mapped_view(segment.path) as view:
        position = start - segment.base
        while position < stop - segment.base:
            found = read_at(view, position, base_physical_offset=segment.base, check_crc=False)
            if not isinstance(found, Message) or not _is_kept(found):
                return False
            resealed.append(found)
            position += found.size_bytes
    if position != stop - segment.base:
        return False
    for record in resealed:
        why = f"the record at {record.physical_offset} is kept, though a property or a field of it may be damaged"
        journal.write(segment.path, record.physical_offset - segment.base, seal_record(encode_message(record)), why)
    return True


def has_property_crc(store: StoreFiles, physical_offset: int) -> bool:
    """Return whether the record at a place of the log ends with a property CRC, right or wrong."""
    segment = store.segment_at(physical_offset)
    if segment is None:
        return False
    with mapped_view(segment.path) as view:
        found = read_at(view, physical_offset - segment.base, base_physical_offset=segment.base, check_crc=False)
    return isinstance(found, Message) and ends_with_crc(found.properties_raw)


def _is_kept(record: Message) -> bool:
    return ends_with_crc(record.properties_raw) and crc32(record.body) & BODY_CRC_MASK == record.body_crc
