"""Bloom filter bits of an SQL92 consumer, computed as in Java's `BloomFilter`.

Orbitlog sets no such bits in queues. It writes them into `consumerFilter.json` for a Java broker that may open the
store later.
"""

from __future__ import annotations

BIT_COUNT = 112
"""Bits for 32 expected consumers and an error rate of 20 percent: Java's defaults."""
BITS_PER_CONSUMER = 3

_MASK_64 = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def bloom_bits(text: str, bit_count: int = BIT_COUNT, count: int = BITS_PER_CONSUMER) -> tuple[int, ...]:
    """Return the bit positions of a text."""
    low_64 = murmur3_low_64(text.encode())
    first, second = low_64 & 0xFFFFFFFF, low_64 >> 32
    return tuple(_folded(first + number * second) % bit_count for number in range(1, count + 1))


def _folded(value: int) -> int:
    """Return 32 bits, inverted if they would be negative as a Java int."""
    value &= 0xFFFFFFFF
    return value ^ 0xFFFFFFFF if value >> 31 else value


def murmur3_low_64(data: bytes) -> int:
    """Return the first half of MurmurHash3 x64 128 with seed 0 (Guava's `murmur3_128().asLong()`, without its sign)."""
    first = second = 0
    whole = len(data) // 16 * 16
    for position in range(0, whole, 16):
        first ^= _mixed_first(int.from_bytes(data[position : position + 8], "little"))
        first = (_rotated(first, 27) + second) & _MASK_64
        first = (first * 5 + 0x52DCE729) & _MASK_64
        second ^= _mixed_second(int.from_bytes(data[position + 8 : position + 16], "little"))
        second = (_rotated(second, 31) + first) & _MASK_64
        second = (second * 5 + 0x38495AB5) & _MASK_64
    tail = data[whole:]
    second ^= _mixed_second(int.from_bytes(tail[8:], "little"))
    first ^= _mixed_first(int.from_bytes(tail[:8], "little"))
    first, second = first ^ len(data), second ^ len(data)
    first = (first + second) & _MASK_64
    second = (second + first) & _MASK_64
    return (_finished(first) + _finished(second)) & _MASK_64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK_64


def _mixed_first(word: int) -> int:
    return _rotated(word * _C1 & _MASK_64, 31) * _C2 & _MASK_64


def _mixed_second(word: int) -> int:
    return _rotated(word * _C2 & _MASK_64, 33) * _C1 & _MASK_64


def _finished(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return word ^ word >> 33
