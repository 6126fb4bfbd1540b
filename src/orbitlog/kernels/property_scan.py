"""Finding properties in their stored string without decoding it.

The string is `name 0x01 value 0x02 …`; separators are found 64 bytes at a time. The rules are those of
`formats.records.properties.decode_properties`: an item counts if name and value are not empty, the name ends at the
first 0x01, and the last of several equal names wins.
"""

from __future__ import annotations

import unicodedata

from orbitlog.formats.records import properties as names
from orbitlog.kernels.arrays import np
from orbitlog.kernels.jit import inlined, with_twin
from orbitlog.kernels.plain import plain_text
from orbitlog.kernels.text import character_at
from orbitlog.kernels.unaligned import load_i64, load_u8, load_u32, separator_mask, trailing_zeros

# The zeros of every script that `formats.delay_levels.parse_level` knows, but for ASCII's.
_ZEROS = np.array([code for code in range(0x80, 0x10000) if unicodedata.decimal(chr(code), None) == 0], np.int64)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ONE = np.uint64(1)

TAGS_NAME = np.uint32(int.from_bytes(names.TAGS.encode(), "big"))
KEYS_NAME = np.uint32(int.from_bytes(names.KEYS.encode(), "big"))
UNIQ_KEY_NAME = np.int64(int.from_bytes(names.UNIQ_KEY.encode(), "big"))
_DELAY_HEAD = np.uint32(int.from_bytes(names.DELAY.encode()[:4], "big"))
_DELAY_TAIL = np.uint8(names.DELAY.encode()[4])
_MULTI_DISPATCH = tuple(
    np.int64(int.from_bytes(names.INNER_MULTI_DISPATCH.encode()[start : start + 8], "big")) for start in (0, 8, 12)
)
assert len(names.INNER_MULTI_DISPATCH) == 20
assert (len(names.TAGS), len(names.KEYS), len(names.UNIQ_KEY), len(names.DELAY)) == (4, 4, 8, 5)


@inlined
def separators(address, position, end, readable_end):
    """Mark the separators among the next 64 bytes before `end`; reads nothing at or past `readable_end`."""
    count = end - position
    if position + 64 <= readable_end:
        marks = separator_mask(address, position)
        return marks if count >= 64 else marks & ~(_ALL << np.uint64(count))
    marks = np.uint64(0)
    for index in range(min(count, 64)):
        byte = load_u8(address, position + index)
        if byte == 1 or byte == 2:
            marks |= _ONE << np.uint64(index)
    return marks


@inlined
def _kind_of_name(address, position, length):
    """Return the number of a name (0 TAGS, 1 KEYS, 2 UNIQ_KEY, 3 DELAY, 4 INNER_MULTI_DISPATCH), or -1."""
    if length == 4:
        name = load_u32(address, position)
        return 0 if name == TAGS_NAME else 1 if name == KEYS_NAME else -1
    if length == 8:
        return 2 if load_i64(address, position) == UNIQ_KEY_NAME else -1
    if length == 5 and load_u32(address, position) == _DELAY_HEAD and load_u8(address, position + 4) == _DELAY_TAIL:
        return 3
    if (
        length == 20
        and load_i64(address, position) == _MULTI_DISPATCH[0]
        and load_i64(address, position + 8) == _MULTI_DISPATCH[1]
        and load_i64(address, position + 12) == _MULTI_DISPATCH[2]
    ):
        return 4
    return -1


@with_twin(plain_text.find_known)
def find_known(address, position, end, readable_end):
    """Find the values of TAGS, KEYS, UNIQ_KEY and DELAY; returns four (start, end) pairs, start -1 for none.

    The ninth element is whether the message was also sent to light queues.
    """
    none = np.int64(-1)
    tags_start = keys_start = unique_start = delay_start = none
    tags_end = keys_end = unique_end = delay_end = none
    is_multi_dispatch = False
    item_start, name_end = position, none
    while item_start <= end:
        marks = np.uint64(0)
        if position < end:
            marks = separators(address, position, end, readable_end)
        # The end of the string also ends its last item: one more turn without a separator.
        is_last = position + 64 >= end
        while marks != 0 or is_last:
            at = position + trailing_zeros(marks) if marks != 0 else end
            marks &= marks - _ONE
            if at < end and load_u8(address, at) == 1:
                name_end = at if name_end < 0 else name_end
                continue
            if name_end > item_start and at > name_end + 1:
                kind = _kind_of_name(address, item_start, name_end - item_start)
                if kind == 0:
                    tags_start, tags_end = name_end + 1, at
                elif kind == 1:
                    keys_start, keys_end = name_end + 1, at
                elif kind == 2:
                    unique_start, unique_end = name_end + 1, at
                elif kind == 3:
                    delay_start, delay_end = name_end + 1, at
                elif kind == 4:
                    is_multi_dispatch = True
            item_start, name_end = at + 1, none
            if at == end:
                break
        position += 64
    return (
        tags_start,
        tags_end,
        keys_start,
        keys_end,
        unique_start,
        unique_end,
        delay_start,
        delay_end,
        is_multi_dispatch,
    )


@inlined
def _digit(code):
    """Return the value of a decimal digit of any script, as Java's `Character.digit` does; -1 for anything else."""
    if code < 0x80:
        return np.int64(code) - 48 if 48 <= code <= 57 else np.int64(-1)
    for zero in _ZEROS:
        if zero <= code <= zero + 9:
            return np.int64(code) - zero
    return np.int64(-1)


@inlined
def parse_delay_level(address, position, end):
    """Read a delay level as Java's `Integer.parseInt`; 0, which delays nothing, if it is not a positive number."""
    first = load_u8(address, position)
    if first == 45:  # -
        return np.int64(0)
    if first == 43:  # +
        position += 1
    value = np.int64(0)
    while position < end:
        code, taken = character_at(address, position, end)
        digit = _digit(code)
        value = value * 10 + digit
        if digit < 0 or value > 2147483647:
            return np.int64(0)
        position += taken
    return value
