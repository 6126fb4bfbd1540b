"""Property faults: finds properties without a CRC, and those with a sector of zeros.

No checksum of a record covers its properties unless they end with a property CRC, so a record whose properties a disk
lost is read as a whole one.
"""

from __future__ import annotations

from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import Bytes
from orbitlog.formats.records.properties import CRC32, CRC_PROPERTY_BYTES
from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import kernel
from orbitlog.kernels.record_walk import MESSAGE, SourceBytes, is_intact, look_at
from orbitlog.kernels.unaligned import load_u8, load_word

_CRC_NAME = np.uint64(int.from_bytes(CRC32.encode(), "little"))
_BYTES = CRC_PROPERTY_BYTES
SECTOR_BYTES = 512
_SECTOR = np.int64(SECTOR_BYTES)


@kernel
def count_lacking(address, position, end, base):
    """Walk the records; returns how many have no property CRC that Java finds, and the position of the first."""
    count, first = np.int64(0), np.int64(-1)
    while position < end:
        kind, parts = look_at(address, position, end, base, True, 0)
        if kind != MESSAGE or not is_intact(address, position, parts, True, True):
            break
        total_size, properties_length = parts[0], parts[5]
        start = position + total_size - _BYTES
        has_crc = properties_length >= _BYTES and load_word(address, start) == _CRC_NAME
        if has_crc:
            has_crc = load_u8(address, start + 8) == 1
            if properties_length > _BYTES:
                has_crc = has_crc and load_u8(address, start - 1) == 2
        if not has_crc:
            first = position if count == 0 else first
            count += 1
        position += total_size
    return count, first


def count_without_crc(buffer: Bytes, base_physical_offset: int) -> tuple[int, int]:
    """Return how many records have no property CRC, and the physical offset of the first, or -1.

    The twin of `store.log.property_crc_mode.records_without_crc`.
    """
    source = SourceBytes(buffer, base_physical_offset)
    count, first = count_lacking(source.address, 0, len(source), source.base)
    return int(count), base_physical_offset + int(first) if count else -1


@kernel
def next_zeroed(address, position, end, base, header_bytes):
    """Walk the records up to one with a zeroed sector; returns the position after it, start and end of the zeros.

    The start is -1 if no record up to the returned position has one; what is there is not a record.
    """
    while position < end:
        kind, parts = look_at(address, position, end, base, True, header_bytes)
        if kind != MESSAGE:
            break
        following = position + header_bytes + parts[0]
        begin = following - parts[5]
        # Each run of a sector's length includes one of these bytes.
        probe = begin + _SECTOR - 1
        while probe < following:
            if load_u8(address, probe) == 0:
                start, stop = probe, probe + 1
                while start > begin and load_u8(address, start - 1) == 0:
                    start -= 1
                while stop < following and load_u8(address, stop) == 0:
                    stop += 1
                if stop - start >= _SECTOR:
                    return following, start, stop
            probe += _SECTOR
        position = following
    return position, np.int64(-1), np.int64(-1)


def find_zeroed(
    buffer: Bytes, position: int, stop: int, *, base_physical_offset: int, log_format: LogFormat = LogFormat.ORDINARY
) -> tuple[int, tuple[int, int] | None]:
    """Return where the walk from a record on stopped, and the range of zeros in the last record before that."""
    source = SourceBytes(buffer, base_physical_offset, log_format)
    position, stop = source.range(position, stop)
    following, start, end = next_zeroed(source.address, position, stop, source.base, source.header_bytes)
    return int(following), None if start < 0 else (int(start), int(end))
