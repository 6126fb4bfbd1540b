"""Short hash: BLAKE2b with a digest of 12 bytes, inlined into kernels; the twin of `hashlib.blake2b`.

The input is one byte range, so counter and buffer of an incremental hash are not needed (RFC 7693).
"""

from __future__ import annotations

import hashlib

from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import inlined, with_twin
from orbitlog.kernels.unaligned import load_word

HASH_BYTES = 12
BLOCK_BYTES = 128

_IV0, _IV1, _IV2, _IV3, _IV4, _IV5, _IV6, _IV7 = (
    np.uint64(word)
    for word in (
        *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
        *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
    )
)
# Parameter block of an unkeyed hash with fanout 1 and depth 1, in the first word of the state.
_START0 = np.uint64(int(_IV0) ^ 0x01010000 ^ HASH_BYTES)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_R32, _R24, _R40, _R16, _R48, _R63, _R1 = (np.uint64(bits) for bits in (32, 24, 40, 16, 48, 63, 1))


@inlined
def _mix(a, b, c, d, x, y):
    a = a + b + x
    d ^= a
    d = (d >> _R32) | (d << _R32)
    c += d
    b ^= c
    b = (b >> _R24) | (b << _R40)
    a = a + b + y
    d ^= a
    d = (d >> _R16) | (d << _R48)
    c += d
    b ^= c
    b = (b >> _R63) | (b << _R1)
    return a, b, c, d


@inlined
def _round(v, x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15):
    a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = v
    a0, b0, c0, d0 = _mix(a0, b0, c0, d0, x0, x1)
    a1, b1, c1, d1 = _mix(a1, b1, c1, d1, x2, x3)
    a2, b2, c2, d2 = _mix(a2, b2, c2, d2, x4, x5)
    a3, b3, c3, d3 = _mix(a3, b3, c3, d3, x6, x7)
    a0, b1, c2, d3 = _mix(a0, b1, c2, d3, x8, x9)
    a1, b2, c3, d0 = _mix(a1, b2, c3, d0, x10, x11)
    a2, b3, c0, d1 = _mix(a2, b3, c0, d1, x12, x13)
    a3, b0, c1, d2 = _mix(a3, b0, c1, d2, x14, x15)
    return a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3


@inlined
def _compress(h, source, first, counter, last):
    m0, m1 = load_word(source, first), load_word(source, first + 8)
    m2, m3 = load_word(source, first + 16), load_word(source, first + 24)
    m4, m5 = load_word(source, first + 32), load_word(source, first + 40)
    m6, m7 = load_word(source, first + 48), load_word(source, first + 56)
    m8, m9 = load_word(source, first + 64), load_word(source, first + 72)
    m10, m11 = load_word(source, first + 80), load_word(source, first + 88)
    m12, m13 = load_word(source, first + 96), load_word(source, first + 104)
    m14, m15 = load_word(source, first + 112), load_word(source, first + 120)
    h0, h1, h2, h3, h4, h5, h6, h7 = h
    v = (h0, h1, h2, h3, h4, h5, h6, h7, _IV0, _IV1, _IV2, _IV3, _IV4 ^ counter, _IV5, _IV6 ^ last, _IV7)
    v = _round(v, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
    v = _round(v, m14, m10, m4, m8, m9, m15, m13, m6, m1, m12, m0, m2, m11, m7, m5, m3)
    v = _round(v, m11, m8, m12, m0, m5, m2, m15, m13, m10, m14, m3, m6, m7, m1, m9, m4)
    v = _round(v, m7, m9, m3, m1, m13, m12, m11, m14, m2, m6, m5, m10, m4, m0, m15, m8)
    v = _round(v, m9, m0, m5, m7, m2, m4, m10, m15, m14, m1, m11, m12, m6, m8, m3, m13)
    v = _round(v, m2, m12, m6, m10, m0, m11, m8, m3, m4, m13, m7, m5, m15, m14, m1, m9)
    v = _round(v, m12, m5, m1, m15, m14, m13, m4, m10, m0, m7, m6, m3, m9, m2, m8, m11)
    v = _round(v, m13, m11, m7, m14, m12, m1, m3, m9, m5, m0, m15, m4, m8, m6, m2, m10)
    v = _round(v, m6, m15, m14, m9, m11, m3, m0, m8, m12, m2, m13, m7, m1, m4, m10, m5)
    v = _round(v, m10, m2, m8, m4, m7, m6, m1, m5, m15, m11, m9, m14, m3, m12, m13, m0)
    v = _round(v, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)
    v = _round(v, m14, m10, m4, m8, m9, m15, m13, m6, m1, m12, m0, m2, m11, m7, m5, m3)
    a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3, d0, d1, d2, d3 = v
    return (
        *(h0 ^ a0 ^ c0, h1 ^ a1 ^ c1, h2 ^ a2 ^ c2, h3 ^ a3 ^ c3),
        *(h4 ^ b0 ^ d0, h5 ^ b1 ^ d1, h6 ^ b2 ^ d2, h7 ^ b3 ^ d3),
    )


def _short_hash(source: memoryview, size: int) -> tuple[int, int]:
    digest = hashlib.blake2b(source[:size], digest_size=HASH_BYTES).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


@with_twin(_short_hash)
def short_hash(source, size):
    """Return the first 8 bytes of the hash of the first `size` bytes, and the last 4, as little-endian numbers.

    The bytes up to the end of the last block must be zero.
    """
    h = (_START0, _IV1, _IV2, _IV3, _IV4, _IV5, _IV6, _IV7)
    position = np.int64(0)
    while size - position > BLOCK_BYTES:
        position += BLOCK_BYTES
        h = _compress(h, source, position - BLOCK_BYTES, np.uint64(position), np.uint64(0))
    h = _compress(h, source, position, np.uint64(size), _ALL_BITS)
    return h[0], h[1] & np.uint64(0xFFFFFFFF)
