"""Log filling: records that replace a damaged range of the log, so that brokers read past it.

A broker follows the log from record to record: unreadable bytes must become records. Each message that is known to be
lost becomes a placeholder without a body, in its topic and queue and with its queue offset: queues stay without gaps,
and consumers see that a message is missing. The rest becomes filler: rolled back transactions of a topic of their own,
which enter no queue and no index. A range that reaches to the end of its segment ends with a BLANK.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from orbitlog.formats import names
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import Message, encode_message, make_message
from orbitlog.formats.records.message_scan import BLANK_BYTES, encode_blank
from orbitlog.formats.records.properties import REAL_QUEUE_ID, REAL_TOPIC
from orbitlog.formats.records.property_crc import seal_record, with_room_for_crc

FILLER_TOPIC = "ORBITLOG_FILLER"
LOST_TOPIC = "ORBITLOG_LOST"
LOST_PROPERTY = "ORBITLOG_LOST"
_FILLER_BODY_MAX = 1 << 20
_TIMER_DUE_PROPERTY = "TIMER_OUT_MS"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A lost message: its queue, its queue offset, and the properties that could be salvaged."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    """Its physical offset, or one before which it must have been."""
    properties: dict[str, str] | None = None
    is_bare: bool = False
    """Whether it has no properties."""


@dataclass(frozen=True, slots=True)
class Filling:
    """The bytes, and which placeholders are in them."""

    data: bytes
    placed: tuple[Placeholder, ...]
    left_out: tuple[Placeholder, ...]


class CannotFill(Exception):
    """The range is too small for a record."""


@dataclass(frozen=True, slots=True)
class Style:
    """What the records are like: their time, whether the range ends a segment, whether they have a property CRC."""

    store_timestamp_ms: int
    ends_segment: bool
    with_property_crc: bool = False

    def encode(self, message: Message) -> bytes:
        if not self.with_property_crc:
            return encode_message(message)
        raw = with_room_for_crc(message.properties_raw)
        return seal_record(encode_message(message._replace(properties_raw=raw)))


def fill(
    start: int,
    stop: int,
    lost: Sequence[Placeholder],
    *,
    store_timestamp_ms: int,
    ends_segment: bool,
    with_property_crc: bool = False,
) -> Filling:
    """Return records for the bytes from physical offset `start` to `stop`, and a BLANK if a segment ends there.

    With `with_property_crc` they have one, unless there is less room then for lost messages.
    """
    plain = _fill_tightly(start, stop, lost, Style(store_timestamp_ms, ends_segment))
    if not with_property_crc:
        return plain
    try:
        sealed = _fill_tightly(start, stop, lost, Style(store_timestamp_ms, ends_segment, with_property_crc=True))
    except CannotFill:
        return plain
    return sealed if len(sealed.left_out) <= len(plain.left_out) else plain


def _fill_tightly(start: int, stop: int, lost: Sequence[Placeholder], style: Style) -> Filling:
    filling = _fill(start, stop, lost, style)
    if filling.left_out:
        tighter = _fill(start, stop, [replace(one, is_bare=True) for one in lost], style)
        filling = min(filling, tighter, key=lambda each: len(each.left_out))
    return filling


def _fill(start: int, stop: int, lost: Sequence[Placeholder], style: Style) -> Filling:
    room, ends_segment = stop - start, style.ends_segment
    keep_back = BLANK_BYTES if ends_segment else 0
    parts: list[bytes] = []
    placed: list[Placeholder] = []
    left_out: list[Placeholder] = []
    position = 0
    for one in _in_queue_order(lost):
        free = room - position - keep_back
        record = _fitting(one, start + position, free, style)
        if record is None:
            left_out.append(one)
        else:
            parts.append(record)
            placed.append(one)
            position += len(record)
    parts += _rest(start + position, stop, style)
    data = b"".join(parts)
    assert len(data) == (room if not ends_segment else position + BLANK_BYTES)
    return Filling(data, tuple(placed), tuple(left_out))


def _fitting(one: Placeholder, physical_offset: int, free: int, style: Style) -> bytes | None:
    """Return a record that leaves nothing of `free`, or enough for a filler; None if it is too long."""
    for properties in ({},) if one.is_bare else (_properties(one), {}):
        record = _record(one, physical_offset, properties, style)
        rest = free - len(record)
        if rest < 0:
            continue
        if style.ends_segment or rest == 0 or rest >= _filler_bytes_min(style.with_property_crc):
            return record
        if properties:
            padded = properties | {LOST_PROPERTY: properties[LOST_PROPERTY] + " " * rest}
            return _record(one, physical_offset, padded, style)
        return _record(one, physical_offset, {}, style, body=b" " * rest)
    return None


def filler_bytes_min() -> int:
    """Return the size of the smallest filler."""
    return _filler_bytes_min(False)


@cache
def _filler_bytes_min(with_property_crc: bool) -> int:
    return len(_filler(0, 0, Style(0, False, with_property_crc)))


def placeholder_bytes_min(topic: str) -> int:
    """Return the size of a placeholder without properties."""
    return filler_bytes_min() - len(FILLER_TOPIC) + len(topic.encode())


def _rest(start: int, stop: int, style: Style) -> list[bytes]:
    room = stop - start
    if style.ends_segment:
        if room < BLANK_BYTES:
            raise CannotFill(f"{room} bytes are too few for the end of a segment")
        return [encode_blank(room)]
    parts = []
    smallest = _filler_bytes_min(style.with_property_crc)
    if 0 < room < smallest:
        raise CannotFill(f"{room} bytes are too few for a record")
    while start < stop:
        size_bytes = min(stop - start, smallest + _FILLER_BODY_MAX)
        if 0 < stop - start - size_bytes < smallest:
            size_bytes -= smallest
        parts.append(_filler(start, size_bytes - smallest, style))
        start += size_bytes
    return parts


def _filler(physical_offset: int, body_bytes: int, style: Style) -> bytes:
    message = make_message(
        FILLER_TOPIC,
        bytes(body_bytes),
        sys_flag=int(TransactionType.ROLLBACK),
        physical_offset=physical_offset,
        store_timestamp_ms=style.store_timestamp_ms,
        born_timestamp_ms=style.store_timestamp_ms,
    )
    return style.encode(message)


def _record(
    one: Placeholder, physical_offset: int, properties: dict[str, str], style: Style, body: bytes = b""
) -> bytes:
    # A half message that was born long ago is never asked about again.
    born_ms = 0 if one.topic == names.HALF_TOPIC else style.store_timestamp_ms
    message = make_message(
        one.topic,
        body,
        properties=properties,
        queue_id=one.queue_id,
        queue_offset=one.queue_offset,
        physical_offset=physical_offset,
        store_timestamp_ms=style.store_timestamp_ms,
        born_timestamp_ms=born_ms,
    )
    return style.encode(message)


def _properties(one: Placeholder) -> dict[str, str]:
    marked = {LOST_PROPERTY: str(one.physical_offset)}
    if one.topic == names.SCHEDULE_TOPIC:
        # The delivery of delayed messages drops one for the half topic, with a line in its log.
        marked |= {REAL_TOPIC: names.HALF_TOPIC, REAL_QUEUE_ID: "0"}
    elif one.topic == names.TIMER_TOPIC:
        marked |= {_TIMER_DUE_PROPERTY: "0", REAL_TOPIC: LOST_TOPIC, REAL_QUEUE_ID: "0"}
    elif one.properties:
        marked |= one.properties
    return marked


def _in_queue_order(lost: Sequence[Placeholder]) -> list[Placeholder]:
    """Order by physical offset, but those of one queue by queue offset."""
    ordered = sorted(lost, key=lambda one: one.physical_offset)
    by_queue: dict[tuple[str, int], list[Placeholder]] = defaultdict(list)
    for one in ordered:
        by_queue[one.topic, one.queue_id].append(one)
    for members in by_queue.values():
        members.sort(key=lambda one: -one.queue_offset)
    return [replace(by_queue[one.topic, one.queue_id].pop(), physical_offset=one.physical_offset) for one in ordered]
