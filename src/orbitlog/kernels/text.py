"""UTF-8 in kernels: is it well-formed, and what does Java's `String.hashCode` make of it?

Java hashes UTF-16 units, and reads malformed bytes as U+FFFD, one for each maximal part that could have begun a
character (see `formats.java.utf8_decode`). Eight ASCII bytes are hashed in one step: the eight products do
not wait for each other.
"""

from __future__ import annotations

from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import inlined, with_twin
from orbitlog.kernels.plain import plain_text
from orbitlog.kernels.unaligned import load_u8, load_word, trailing_zeros

_HIGH_BITS = np.uint64(0x8080808080808080)
_MALFORMED = np.int32(0xFFFD)
_P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8 = (np.int32((31**n + 2**31) % 2**32 - 2**31) for n in range(1, 9))
_BYTE = np.uint64(0xFF)
_ONES = np.uint64(0x0101010101010101)


@with_twin(plain_text.find_byte)
def find_byte(address, position, end, eight_times):
    """Return the position of the first byte equal to that of `eight_times` (one byte, eight times), or `end`."""
    while position + 8 <= end:
        word = load_word(address, position) ^ eight_times
        marks = (word - _ONES) & ~word & _HIGH_BITS  # the lowest mark is exact, higher ones may be borrowed
        if marks != 0:
            return position + (trailing_zeros(marks) >> 3)
        position += 8
    while position < end and load_u8(address, position) != eight_times & _BYTE:
        position += 1
    return position


@inlined
def _encoded_surrogate_bytes(address, position, end):
    """Return how many bytes an encoded surrogate takes: Java reads it as one malformed character."""
    if position + 2 < end and load_u8(address, position + 2) & 0xC0 == 0x80:
        return 3
    return 2


@inlined
def character_at(address, position, end):
    """Return the code point at `position` (-1 where malformed) and how many bytes it or the malformed part takes."""
    first = np.int32(load_u8(address, position))
    if first < 0x80:
        return first, 1
    if first < 0xC2 or first > 0xF4:
        return np.int32(-1), 1
    needed = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    code = first & (0x1F if needed == 1 else 0x0F if needed == 2 else 0x07)
    low, high = np.int32(0x80), np.int32(0xBF)
    # The second byte has a narrower range after these, or overlong forms and surrogates would slip in.
    if first == 0xE0:
        low = np.int32(0xA0)
    elif first == 0xED:
        high = np.int32(0x9F)
    elif first == 0xF0:
        low = np.int32(0x90)
    elif first == 0xF4:
        high = np.int32(0x8F)
    taken = 1
    while taken <= needed:
        if position + taken >= end:
            return np.int32(-1), taken
        following = np.int32(load_u8(address, position + taken))
        if following < low or following > high:
            if first == 0xED and taken == 1 and 0xA0 <= following <= 0xBF:
                return np.int32(-1), _encoded_surrogate_bytes(address, position, end)
            return np.int32(-1), taken
        code = np.int32((code << 6) | (following & 0x3F))
        low, high = np.int32(0x80), np.int32(0xBF)
        taken += 1
    return code, taken


@with_twin(plain_text.is_utf8)
def is_utf8(address, position, end):
    """Return whether the bytes are well-formed UTF-8."""
    while position + 8 <= end and load_word(address, position) & _HIGH_BITS == 0:
        position += 8
        if position < end < position + 8 and load_word(address, end - 8) & _HIGH_BITS == 0:
            return True  # the rest is ASCII: checked in one word that overlaps the bytes before
    while position < end:
        code, taken = character_at(address, position, end)
        if code < 0:
            return False
        position += taken
    return True


@with_twin(plain_text.java_hash)
def java_hash(address, position, end, value):
    """Continue a Java string hash over UTF-8 bytes."""
    while position + 8 <= end:
        word = load_word(address, position)
        if word & _HIGH_BITS != 0:
            break
        value = np.int32(
            value * _P8
            + (
                (np.int32(word & _BYTE) * _P7 + np.int32((word >> np.uint64(8)) & _BYTE) * _P6)
                + (np.int32((word >> np.uint64(16)) & _BYTE) * _P5 + np.int32((word >> np.uint64(24)) & _BYTE) * _P4)
                + (np.int32((word >> np.uint64(32)) & _BYTE) * _P3 + np.int32((word >> np.uint64(40)) & _BYTE) * _P2)
                + (np.int32((word >> np.uint64(48)) & _BYTE) * _P1 + np.int32((word >> np.uint64(56)) & _BYTE))
            )
        )
        position += 8
    while position < end:
        first = np.int32(load_u8(address, position))
        if first < 0x80:
            value = np.int32(value * _P1 + first)
            position += 1
        else:
            value, position = _hash_character(address, position, end, value)
    return value


@inlined
def _hash_character(address, position, end, value):
    code, taken = character_at(address, position, end)
    if code < 0:
        value = np.int32(value * _P1 + _MALFORMED)
    elif code < 0x10000:
        value = np.int32(value * _P1 + code)
    else:
        value = np.int32(value * _P1 + np.int32(0xD800 + ((code - 0x10000) >> 10)))
        value = np.int32(value * _P1 + np.int32(0xDC00 + ((code - 0x10000) & 0x3FF)))
    return value, position + taken


@inlined
def index_hash(value):
    """Return the index hash of a Java hash: its absolute value, 0 for the int minimum, which has none."""
    if value >= 0:
        return value
    return np.int32(0) if value == np.int32(-2147483648) else np.int32(-value)
