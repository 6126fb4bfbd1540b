"""Row members: message ids of rows, and the rows as members of batch requests, many rows in one call.

The ids are hashes of the content of rows (`pipeline.sink.row_ids` states of what), the members are what
`formats.records.batch.encode_batch` returns. Rows come as byte ranges of columns, so no row becomes an object.
"""

from __future__ import annotations

from orbitlog.formats.records.batch import BATCH_MEMBER, MEMBER_BYTES_MIN
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.jit import inlined, kernel
from orbitlog.kernels.rows.short_hash import BLOCK_BYTES, HASH_BYTES, LANE_WORDS, LANES, STATE_SIZE, hash_lanes
from orbitlog.kernels.unaligned import copy_bytes, store_i32

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

ID_CHARACTERS = 32
_SCRATCH_BYTES = 3 * BLOCK_BYTES
_HEAD = BATCH_MEMBER.size_bytes
_FLAG, _BODY_LENGTH = BATCH_MEMBER.position("flag"), BATCH_MEMBER.position("body_length")
_LENGTHS = MEMBER_BYTES_MIN
_BEFORE_TIME_BYTES, _TIME_CHARACTERS = 10, 8
_ZERO, _LETTER, _COLON = ord("0"), ord("A") - 10, ord(":")
_COUNT_SHIFT, _LAST_MASK = np.uint64(32), np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1 << 32)


@inlined
def _digits(value):
    """Return the number of digits of a number that is not negative."""
    digits, rest = np.int64(1), value // 10
    while rest > 0:
        digits += 1
        rest //= 10
    return digits


@inlined
def _put_decimal(target, at, value):
    """Write a number that is not negative as text; return the position after it."""
    digits = _digits(value)
    for place in range(at + digits - 1, at - 1, -1):
        target[place] = _ZERO + value % 10
        value //= 10
    return at + digits


def scratch_for(start: Bytes, content_bytes: int) -> Bytes:
    """Return room for the messages of `hash_rows` and `hash_repeated`, whose bodies and rests are at most this long."""
    stride = (len(start) + content_bytes + _SCRATCH_BYTES) // BLOCK_BYTES * BLOCK_BYTES
    return np.empty(LANES * stride, np.uint8)


@inlined
def _end_of_blocks(target, start, end):
    """Fill the last block of a message with zeros."""
    for place in range(end, start + max(end - start + BLOCK_BYTES - 1, BLOCK_BYTES) // BLOCK_BYTES * BLOCK_BYTES):
        target[place] = 0


@kernel
def hash_rows(
    start: Bytes,
    before: Bytes,
    after: Bytes,
    bodies: Bytes,
    body_starts: Places,
    body_stops: Places,
    rests: Bytes,
    rest_starts: Places,
    rest_stops: Places,
    scratch: Bytes,
    hashes: Hashes,
) -> None:
    """Hash `start`, then body with its length and with `before` and `after` around it, then the rest, of each row.

    `scratch` has room for LANES messages.
    """
    target, source, others = scratch.ctypes.data, bodies.ctypes.data, rests.ctypes.data
    start_bytes, before_bytes, after_bytes = start.shape[0], before.shape[0], after.shape[0]
    state, lanes, sizes = np.empty(STATE_SIZE, np.uint64), np.empty(LANE_WORDS, np.uint64), np.zeros(LANES, np.int64)
    rows, stride = np.int64(body_starts.shape[0]), np.int64(scratch.shape[0] // LANES)
    for lane in range(LANES):
        copy_bytes(target, np.int64(lane * stride), start.ctypes.data, np.int64(0), np.int64(start_bytes))
    for first in range(0, rows, LANES):
        count = min(rows - first, np.int64(LANES))
        for lane in range(count):
            row, lane_start = first + lane, lane * stride
            body_bytes = body_stops[row] - body_starts[row]
            at = _put_decimal(scratch, np.int64(lane_start + start_bytes), before_bytes + body_bytes + after_bytes)
            scratch[at] = _COLON
            at += 1
            copy_bytes(target, at, before.ctypes.data, np.int64(0), np.int64(before_bytes))
            at += before_bytes
            copy_bytes(target, at, source, body_starts[row], body_bytes)
            at += body_bytes
            copy_bytes(target, at, after.ctypes.data, np.int64(0), np.int64(after_bytes))
            at += after_bytes
            rest_bytes = rest_stops[row] - rest_starts[row]
            copy_bytes(target, at, others, rest_starts[row], rest_bytes)
            at += rest_bytes
            _end_of_blocks(scratch, lane_start, at)
            sizes[lane] = at - lane_start
        hash_lanes(scratch, stride, sizes, state, lanes)
        for lane in range(count):
            hashes[first + lane, 0] = state[lane]
            hashes[first + lane, 1] = state[LANES + lane]


@inlined
def _slot_of(slots, first, last):
    """Return the slot of a hash, or the empty one in which it belongs."""
    mask = np.int64(slots.shape[0] - 1)
    place = np.int64(first & np.uint64(mask))
    while slots[place, 1] >> _COUNT_SHIFT != 0 and (slots[place, 0] != first or slots[place, 1] & _LAST_MASK != last):
        place = (place + 1) & mask
    return place


@kernel
def count_equal(slots: Hashes, hashes: Hashes, is_counted: npt.NDArray[np.bool_], numbers: Hashes) -> int:
    """Set the number of equal rows before each row, from and into the table `slots`; return how many are new to it."""
    added = 0
    for row in range(hashes.shape[0]):
        if not is_counted[row]:
            numbers[row] = 0
            continue
        place = _slot_of(slots, hashes[row, 0], hashes[row, 1])
        earlier = slots[place, 1] >> _COUNT_SHIFT
        if earlier == 0:
            slots[place, 0] = hashes[row, 0]
            slots[place, 1] = hashes[row, 1] | _ONE
            added += 1
        else:
            slots[place, 1] += _ONE
        numbers[row] = earlier
    return added


@kernel
def move_slots(slots: Hashes, larger: Hashes) -> None:
    """Copy a table into a larger one."""
    for old in range(slots.shape[0]):
        if slots[old, 1] >> _COUNT_SHIFT != 0:
            place = _slot_of(larger, slots[old, 0], slots[old, 1] & _LAST_MASK)
            larger[place, 0] = slots[old, 0]
            larger[place, 1] = slots[old, 1]


@kernel
def hash_repeated(start: Bytes, numbers: Hashes, scratch: Bytes, hashes: Hashes) -> None:
    """Replace the hash of each row that follows equal ones: by that of its hash and of its number among them."""
    target, start_bytes = scratch.ctypes.data, start.shape[0]
    state, lanes, sizes = np.empty(STATE_SIZE, np.uint64), np.empty(LANE_WORDS, np.uint64), np.zeros(LANES, np.int64)
    chosen = np.zeros(LANES, np.int64)
    rows, stride, count = np.int64(hashes.shape[0]), np.int64(scratch.shape[0] // LANES), np.int64(0)
    for row in range(rows):
        number = np.int64(numbers[row])
        if number > 0:
            lane_start = count * stride
            copy_bytes(target, lane_start, start.ctypes.data, np.int64(0), np.int64(start_bytes))
            at = _put_decimal(scratch, lane_start + start_bytes, np.int64(HASH_BYTES))
            scratch[at] = _COLON
            at += 1
            for byte in range(HASH_BYTES):
                scratch[at + byte] = (hashes[row, byte // 8] >> np.uint64(8 * (byte % 8))) & np.uint64(0xFF)
            at = _put_decimal(scratch, at + HASH_BYTES, _digits(number))
            scratch[at] = _COLON
            at = _put_decimal(scratch, at + 1, number)
            _end_of_blocks(scratch, lane_start, at)
            sizes[count], chosen[count] = at - lane_start, row
            count += 1
        if count == LANES or (row == rows - 1 and count > 0):
            hash_lanes(scratch, stride, sizes, state, lanes)
            for lane in range(count):
                hashes[chosen[lane], 0] = state[lane]
                hashes[chosen[lane], 1] = state[LANES + lane]
            count = np.int64(0)


@kernel
def write_ids(hashes: Hashes, ids: Bytes) -> None:
    """Write hashes as ids of the layout of Java's `MessageClientIDSetter`, with 0 as the time."""
    for row in range(hashes.shape[0]):
        at = 0
        for byte in range(HASH_BYTES):
            if byte == _BEFORE_TIME_BYTES:
                for _ in range(_TIME_CHARACTERS):
                    ids[row, at] = _ZERO
                    at += 1
            value = (hashes[row, byte // 8] >> np.uint64(8 * (byte % 8))) & np.uint64(0xFF)
            high, low = np.int64(value >> np.uint64(4)), np.int64(value & np.uint64(15))
            ids[row, at] = (_ZERO if high < 10 else _LETTER) + high
            ids[row, at + 1] = (_ZERO if low < 10 else _LETTER) + low
            at += 2


@kernel
def write_members(
    bodies: Bytes,
    body_starts: Places,
    body_stops: Places,
    texts: Bytes,
    text_starts: Places,
    text_stops: Places,
    ids: Bytes,
    around: Bytes,
    flags: Places,
    ends: Places,
    members: Bytes,
) -> None:
    """Write the members of rows, each up to its end; a row that ends where the one before it does is left out.

    The properties of a row are its `texts`, then its id in its place in `around`: `around` has 32 zero bytes there.
    """
    target, source, others = members.ctypes.data, bodies.ctypes.data, texts.ctypes.data
    around_bytes = np.int64(around.shape[0])
    id_place = np.int64(0)
    while around[id_place] != 0:
        id_place += 1
    at = np.int64(0)
    for row in range(ends.shape[0]):
        if ends[row] == at:
            continue
        body_bytes, text_bytes = body_stops[row] - body_starts[row], text_stops[row] - text_starts[row]
        store_i32(target, at, np.int32(ends[row] - at))
        store_i32(target, at + 4, np.int32(0))
        store_i32(target, at + 8, np.int32(0))
        store_i32(target, at + _FLAG, np.int32(flags[row]))
        store_i32(target, at + _BODY_LENGTH, np.int32(body_bytes))
        at += _HEAD
        copy_bytes(target, at, source, body_starts[row], body_bytes)
        at += body_bytes
        properties_bytes = text_bytes + around_bytes
        members[at] = properties_bytes >> 8
        members[at + 1] = properties_bytes & 0xFF
        at += 2
        copy_bytes(target, at, others, text_starts[row], text_bytes)
        at += text_bytes
        copy_bytes(target, at, around.ctypes.data, np.int64(0), around_bytes)
        copy_bytes(target, at + id_place, ids.ctypes.data, np.int64(row * ID_CHARACTERS), np.int64(ID_CHARACTERS))
        at += around_bytes


@kernel
def is_plain_text(data: Bytes, start: int, stop: int) -> bool:
    """Return whether all bytes are ASCII, printable, and neither an apostrophe nor a backslash."""
    bad = np.uint8(0)
    for place in range(start, stop):
        byte = data[place]
        bad |= (byte < 32) | (byte > 126) | (byte == 39) | (byte == 92)
    return bool(bad == 0)
