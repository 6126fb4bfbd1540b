"""Loads, stores and copies of a memoryview: the twins of `machine_loads` and of `machine_crc.body_crc`."""

from __future__ import annotations

import struct
from zlib import crc32

Address = memoryview
_U16, _I32, _U32, _I64 = (struct.Struct(f">{code}") for code in "HiIq")
_HALF_WORD, _WORD = struct.Struct("<I"), struct.Struct("<Q")


def load_u8(address: Address, position: int) -> int:
    return address[position]


def load_u16(address: Address, position: int) -> int:
    return int(_U16.unpack_from(address, position)[0])


def load_i32(address: Address, position: int) -> int:
    return int(_I32.unpack_from(address, position)[0])


def load_u32(address: Address, position: int) -> int:
    return int(_U32.unpack_from(address, position)[0])


def load_i64(address: Address, position: int) -> int:
    return int(_I64.unpack_from(address, position)[0])


def load_half_word(address: Address, position: int) -> int:
    return int(_HALF_WORD.unpack_from(address, position)[0])


def load_word(address: Address, position: int) -> int:
    return int(_WORD.unpack_from(address, position)[0])


def store_i32(address: Address, position: int, value: int) -> None:
    _I32.pack_into(address, position, value)


def store_i64(address: Address, position: int, value: int) -> None:
    _I64.pack_into(address, position, value)


def copy_bytes(to: Address, to_position: int, source: Address, position: int, count: int) -> None:
    to[to_position : to_position + count] = source[position : position + count]


def trailing_zeros(word: int) -> int:
    """Count the zero bits below the lowest one that is set; 64 if none is."""
    return (word & -word).bit_length() - 1 if word else 64


def separator_mask(address: Address, position: int) -> int:
    """Mark which of the next 64 bytes are 0x01 or 0x02, the first in the lowest bit."""
    return sum(1 << index for index, byte in enumerate(address[position : position + 64]) if byte in (1, 2))


def prefetch(address: Address, position: int) -> None:
    """Do nothing: there is no instruction for it."""


def prefetch_next(address: Address, position: int, total_size: int) -> None:
    """Do nothing, as `prefetch`."""


def body_crc(address: Address, position: int, length: int) -> int:
    """Return the CRC as a record keeps it: without its top bit."""
    return crc32(address[position : position + length]) & 0x7FFFFFFF
