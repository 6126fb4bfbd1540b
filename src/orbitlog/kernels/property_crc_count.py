"""Records without a property CRC, counted: the twin of `store.log.property_crc_mode.records_without_crc`."""

from __future__ import annotations

import numpy as np

from orbitlog.formats.records.message import Bytes
from orbitlog.formats.records.properties import CRC32, CRC_PROPERTY_BYTES
from orbitlog.kernels.jit import kernel
from orbitlog.kernels.record_walk import MESSAGE, SourceBytes, is_intact, look_at
from orbitlog.kernels.unaligned import load_u8, load_word

_CRC_NAME = np.uint64(int.from_bytes(CRC32.encode(), "little"))
_BYTES = CRC_PROPERTY_BYTES


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
    """Return how many records have no property CRC, and the physical offset of the first, or -1."""
    source = SourceBytes(buffer, base_physical_offset)
    count, first = count_lacking(source.address, 0, len(source), source.base)
    return int(count), base_physical_offset + int(first) if count else -1
