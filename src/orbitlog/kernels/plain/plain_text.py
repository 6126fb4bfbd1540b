"""Text in a memoryview: the twins of functions in `kernels.text`, `kernels.property_scan` and `kernels.queue_table`.

Kernels run as they are written if they are not compiled. These functions would take most of that time: they look at
words of eight bytes, which Python does faster with whole strings.
"""

from __future__ import annotations

from orbitlog.formats.java import ascii_hash, string_hash, to_int, utf8_decode, utf16_length
from orbitlog.formats.records import properties as names

Address = memoryview
_PROPERTY_END, _NAME_END = names.PROPERTY_END.encode(), names.NAME_END.encode()
# The place of the value's start in the result of `find_known`.
_KNOWN = {name.encode(): 2 * at for at, name in enumerate((names.TAGS, names.KEYS, names.UNIQ_KEY, names.DELAY))}
_MULTI_DISPATCH = names.INNER_MULTI_DISPATCH.encode()


def is_utf8(address: Address, position: int, end: int) -> bool:
    """Return whether the bytes are well-formed UTF-8."""
    try:
        str(address[position:end], "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def java_hash(address: Address, position: int, end: int, value: int) -> int:
    """Continue a Java string hash over UTF-8 bytes."""
    raw = bytes(address[position:end])
    if raw.isascii():
        return to_int(ascii_hash(raw, value & 0xFFFFFFFF))
    text = utf8_decode(raw)
    return to_int(value * pow(31, utf16_length(text), 2**32) + string_hash(text))


def find_byte(address: Address, position: int, end: int, eight_times: int) -> int:
    """Return the position of the first byte equal to that of `eight_times` (one byte, eight times), or `end`."""
    found = bytes(address[position:end]).find(eight_times & 0xFF)
    return end if found < 0 else position + found


def find_known(address: Address, position: int, end: int, readable_end: int) -> tuple[int, ...]:
    """Find the values of TAGS, KEYS, UNIQ_KEY and DELAY; returns four (start, end) pairs, start -1 for none.

    The ninth element is whether the message was also sent to light queues.
    """
    found, is_multi_dispatch = [-1] * 8, False
    for item in bytes(address[position:end]).split(_PROPERTY_END):
        name, _, value = item.partition(_NAME_END)
        if name and value:
            at = _KNOWN.get(name)
            if at is not None:
                found[at], found[at + 1] = position + len(name) + 1, position + len(item)
            elif name == _MULTI_DISPATCH:
                is_multi_dispatch = True
        position += len(item) + 1
    return *found, is_multi_dispatch


def slot_of(address: Address, position: int, length: int, queue_id: int, slots: int) -> int:
    """Mix topic and queue id into a first slot to try; another one than the compiled kernel's does as well."""
    return hash((bytes(address[position : position + length]), queue_id)) & (slots - 1)
