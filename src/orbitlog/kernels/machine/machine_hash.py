"""BLAKE2b of four messages at once, one in each lane of the vector registers: a third of the time of one by one.

A lane is a message of its own (RFC 7693, digest of 12 bytes, no key). **Nothing here checks bounds.**
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 4
STATE_WORDS = 8
_WORDS_IN_BLOCK = 16
_I64 = ir.IntType(64)
_VECTOR = ir.VectorType(_I64, LANES)
_SCHEDULE = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
    (14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3),
    (11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4),
    (7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8),
    (9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13),
    (2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9),
    (12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11),
    (13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10),
    (6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5),
    (10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0),
)
_ROUNDS = 12
_MIXED = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)
_ROTATIONS = (32, 24, 16, 63)
IV = (
    *(0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1),
    *(0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179),
)


def _constant(value: int) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * LANES)


def _load(builder: ir.IRBuilder, address: ir.Value, byte: int) -> ir.Value:
    place = builder.add(address, ir.Constant(_I64, byte))
    return builder.load(builder.inttoptr(place, _VECTOR.as_pointer()), align=1)


def _words(builder: ir.IRBuilder, blocks: list[ir.Value]) -> list[ir.Value]:
    """Return the words of a block of each lane, word by word: a transposition of four words of four lanes at a time."""

    def shuffled(first: ir.Value, second: ir.Value, *order: int) -> ir.Value:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(order))
        return builder.shuffle_vector(first, second, mask)

    words = []
    for byte in range(0, 8 * _WORDS_IN_BLOCK, 8 * LANES):
        rows = [_load(builder, block, byte) for block in blocks]
        low = [shuffled(rows[lane], rows[lane + 1], 0, 4, 2, 6) for lane in (0, 2)]
        high = [shuffled(rows[lane], rows[lane + 1], 1, 5, 3, 7) for lane in (0, 2)]
        words += [shuffled(*low, 0, 1, 4, 5), shuffled(*high, 0, 1, 4, 5)]
        words += [shuffled(*low, 2, 3, 6, 7), shuffled(*high, 2, 3, 6, 7)]
    return words


def _mix(builder: ir.IRBuilder, state: list[ir.Value], places: tuple[int, ...], words: list[ir.Value]) -> None:
    a, b, c, d = places

    def turned(value: ir.Value, bits: int) -> ir.Value:
        return builder.or_(builder.lshr(value, _constant(bits)), builder.shl(value, _constant(64 - bits)))

    for half in (0, 1):
        state[a] = builder.add(builder.add(state[a], state[b]), words[half])
        state[d] = turned(builder.xor(state[d], state[a]), _ROTATIONS[2 * half])
        state[c] = builder.add(state[c], state[d])
        state[b] = turned(builder.xor(state[b], state[c]), _ROTATIONS[2 * half + 1])


@intrinsic
def compress_lanes(typingctx: Any, state: Any, lanes: Any, block0: Any, block1: Any, block2: Any, block3: Any) -> Any:
    """Compress a block of each lane into the state at an address, eight vectors of 32 bytes.

    At the address `lanes` are three vectors: the bytes hashed so far, all ones for the last block of a lane, and all
    ones for a lane that takes part; the others keep their state.
    """
    signature = types.void(*[types.uintp] * 6)

    def codegen(context: Any, builder: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        h = [_load(builder, args[0], 8 * LANES * word) for word in range(STATE_WORDS)]
        counters, lasts, active = (_load(builder, args[1], 8 * LANES * row) for row in range(3))
        words = _words(builder, list(args[2:]))
        v = [*h, *map(_constant, IV)]
        v[12], v[14] = builder.xor(v[12], counters), builder.xor(v[14], lasts)
        for number in range(_ROUNDS):
            schedule = _SCHEDULE[number % len(_SCHEDULE)]
            for index, places in enumerate(_MIXED):
                _mix(builder, v, places, [words[schedule[2 * index]], words[schedule[2 * index + 1]]])
        for word in range(STATE_WORDS):
            change = builder.and_(builder.xor(v[word], v[word + STATE_WORDS]), active)
            place = builder.add(args[0], ir.Constant(_I64, 8 * LANES * word))
            builder.store(builder.xor(h[word], change), builder.inttoptr(place, _VECTOR.as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, codegen
