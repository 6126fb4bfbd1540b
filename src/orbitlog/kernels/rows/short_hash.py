"""Short hashes: BLAKE2b with a digest of 12 bytes of four messages at once; the twin of `hashlib.blake2b`."""

from __future__ import annotations

import hashlib
from typing import Any

from orbitlog.kernels import COMPILED
from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import with_twin

if COMPILED:
    from orbitlog.kernels.machine.machine_hash import IV, STATE_WORDS, compress_lanes
else:
    STATE_WORDS, IV = 8, (0,) * 8

LANES = 4
HASH_BYTES = 12
BLOCK_BYTES = 128
LANE_WORDS = 4 * LANES
STATE_SIZE = STATE_WORDS * LANES
# The first word of the state contains the parameters: no key, fanout 1, depth 1.
_START = tuple(np.uint64(word) for word in (IV[0] ^ 0x01010000 ^ HASH_BYTES, *IV[1:]))
_ALL_BITS, _NO_BITS, _LOW_BITS = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0), np.uint64(0xFFFFFFFF)


def _hash_lanes(messages: Any, stride: int, sizes: Any, state: Any, lanes: Any) -> None:
    for lane in range(LANES):
        start = lane * stride
        digest = hashlib.blake2b(bytes(messages[start : start + sizes[lane]]), digest_size=HASH_BYTES).digest()
        state[lane] = int.from_bytes(digest[:8], "little")
        state[LANES + lane] = int.from_bytes(digest[8:], "little")


@with_twin(_hash_lanes)
def hash_lanes(messages, stride, sizes, state, lanes):
    """Hash a message of `sizes[lane]` bytes at each `stride`: `state` then begins with the first 8 bytes of each hash.

    They are little-endian numbers; the last 4 bytes of each hash follow. The bytes after a message must be zero up to
    the end of its last block. `state` and `lanes` are scratch arrays of STATE_SIZE and LANE_WORDS words.
    """
    longest = np.int64(0)
    for lane in range(LANES):
        longest = max(longest, sizes[lane])
        for word in range(STATE_WORDS):
            state[word * LANES + lane] = _START[word]
    address, state_address, lanes_address = messages.ctypes.data, state.ctypes.data, lanes.ctypes.data
    position = np.int64(0)
    while position == 0 or position < longest:
        following = position + BLOCK_BYTES
        for lane in range(LANES):
            is_active = position < sizes[lane] or position == 0
            is_last = is_active and following >= sizes[lane]
            lanes[lane] = np.uint64(sizes[lane] if is_last else following)
            lanes[LANES + lane] = _ALL_BITS if is_last else _NO_BITS
            lanes[2 * LANES + lane] = _ALL_BITS if is_active else _NO_BITS
        place = np.uint64(address) + np.uint64(position)
        step = np.uint64(stride)
        compress_lanes(
            *(state_address, lanes_address),
            *(place, place + step, place + step + step, place + step + step + step),
        )
        position = following
    for lane in range(LANES):
        state[LANES + lane] &= _LOW_BITS
