"""Bloom filter of the filter bitmaps: a few bits for each SQL consumer, set if its expression was true.

The bitmap of a message has the bits of every registered consumer that it matched; a consumer whose bits are not
all set need not have the message evaluated again. Mirrors Java `BloomFilter` and `BitsArray`; the hash is Guava's
`murmur3_128`, of which the first 64 bits count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from orbitlog.errors import BadField, LengthMismatch
from orbitlog.formats.java import to_int, utf8_encode

ERROR_RATE_PERCENT_DEFAULT = 20
CONSUMER_COUNT_DEFAULT = 32

_MASK = 0xFFFFFFFFFFFFFFFF
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BLOCK_BYTES = 16


def murmur3_x64_128(data: bytes, seed: int = 0) -> tuple[int, int]:
    """Return the two 64-bit halves of MurmurHash3 x64 128."""
    low = high = seed
    tail_start = len(data) - len(data) % _BLOCK_BYTES
    for start in range(0, tail_start, _BLOCK_BYTES):
        low ^= _mix_low(int.from_bytes(data[start : start + 8], "little"))
        low = (_rotate(low, 27) + high) * 5 + 0x52DCE729 & _MASK
        high ^= _mix_high(int.from_bytes(data[start + 8 : start + 16], "little"))
        high = (_rotate(high, 31) + low) * 5 + 0x38495AB5 & _MASK
    low ^= _mix_low(int.from_bytes(data[tail_start : tail_start + 8], "little"))
    high ^= _mix_high(int.from_bytes(data[tail_start + 8 :], "little"))
    low ^= len(data)
    high ^= len(data)
    low = low + high & _MASK
    high = high + low & _MASK
    low, high = _finish(low), _finish(high)
    low = low + high & _MASK
    return low, high + low & _MASK


def _mix_low(block: int) -> int:
    return _rotate(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_high(block: int) -> int:
    return _rotate(block * _C2 & _MASK, 33) * _C1 & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """How many bits a bitmap has and how many of them a consumer sets."""

    bit_count: int
    hash_count: int

    @property
    def bitmap_bytes(self) -> int:
        return self.bit_count // 8

    def positions(self, *, group: str, topic: str) -> tuple[int, ...]:
        """Return the bits of a consumer; the same one may come twice."""
        hash64, _ = murmur3_x64_128(utf8_encode(f"{group}#{topic}"))
        low, high = to_int(hash64), to_int(hash64 >> 32)
        combined = (to_int(low + number * high) for number in range(1, self.hash_count + 1))
        return tuple((value if value >= 0 else ~value) % self.bit_count for value in combined)

    def bitmap(self, consumers: Iterable[Iterable[int]]) -> bytes:
        """Return the bitmap with the bits of all given consumers set."""
        bits = bytearray(self.bitmap_bytes)
        for positions in consumers:
            for position in positions:
                bits[self._byte(position)] |= 1 << position % 8
        return bytes(bits)

    def is_hit(self, bitmap: bytes, positions: Iterable[int]) -> bool:
        """Return whether all bits of a consumer are set."""
        if len(bitmap) != self.bitmap_bytes:
            raise LengthMismatch(field="filter bitmap", stated=len(bitmap), counted=self.bitmap_bytes)
        return all(bitmap[self._byte(position)] & 1 << position % 8 for position in positions)

    def _byte(self, position: int) -> int:
        if not 0 <= position < self.bit_count:
            raise BadField(f"{position} is outside a bitmap of {self.bit_count} bits", field="bit position")
        return position // 8


def bloom_filter(
    error_rate_percent: int = ERROR_RATE_PERCENT_DEFAULT, consumer_count: int = CONSUMER_COUNT_DEFAULT
) -> BloomFilter:
    """Return the filter for `maxErrorRateOfBloomFilter` and `expectConsumerNumUseFilter` of a broker's settings."""
    if not 1 <= error_rate_percent < 100:
        raise BadField(f"{error_rate_percent} is not between 1 and 99", field="bloom filter error rate")
    if not 1 <= consumer_count <= 1_000_000:
        raise BadField(f"{consumer_count} is not between 1 and 1000000", field="bloom filter consumer count")
    error_rate = error_rate_percent / 100
    bit_count = math.ceil(consumer_count * _log(2, 1 / error_rate) * _log(2, math.e))
    return BloomFilter(bit_count=8 * math.ceil(bit_count / 8), hash_count=math.ceil(_log(0.5, error_rate)))


def _log(base: float, value: float) -> float:
    """Take the logarithm as Java's code does; `math.log2` would round differently."""
    return math.log(value) / math.log(base)
