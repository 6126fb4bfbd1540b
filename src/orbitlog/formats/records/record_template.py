"""Record encoder: joins what many records share (a template) with what each has of its own.

Every record comes from `record_parts`. Fast paths build a template once for each kind of request and encode rows with
`encode_run`; `encode_placed` in `message` encodes one record; a batch encodes member by member. A batch of equal
members and its kernel encode one record here and copy it with the CRC, offsets, body and properties of each member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.formats.layout import Layout
from orbitlog.formats.records.record_layout import (
    IPV6_BITS,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_PREFIXES,
    RECORD_TAIL,
    TOPIC_BYTES_MAX_V1,
)

if TYPE_CHECKING:
    from orbitlog.formats.records.message import Message

_AFTER_STORE_TIME = ("store_host_raw", "reconsume_times", "prepared_transaction_offset")
Pack = Callable[..., bytes]
_pack_properties_length = RECORD_TAIL.partial("properties_length", start="properties_length").pack
_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class


def _prefix_codec(layout: Layout) -> tuple[Pack, Pack, int]:
    """Return a function that packs a prefix, one that packs its field `after_store_time`, and a size.

    The size is that of a record without body, topic, topic length and properties.
    """
    names = [field.name for field in layout.fields]
    pack_prefix = layout.partial(*names[: names.index(_AFTER_STORE_TIME[0])], _AFTER_STORE_TIME, "body_length").pack
    pack_after_store_time = layout.partial(*_AFTER_STORE_TIME, start=_AFTER_STORE_TIME[0]).pack
    return (
        pack_prefix,
        pack_after_store_time,
        layout.size_bytes + RECORD_TAIL.size_bytes - RECORD_TAIL.position("properties_length"),
    )


# Keyed by the two host bits of sysFlag.
_PREFIX_CODECS = {bits: _prefix_codec(layout) for bits, layout in RECORD_PREFIXES.items()}


class RecordTemplate(NamedTuple):
    """The parts that records of one kind share.

    `after_store_time` is the raw bytes of store host, reconsume times and prepared transaction offset. `size_bytes` is
    the size of a record without body and properties. `topic_part`, the topic with its length, follows the body.
    `pack_prefix` takes total size, magic, body CRC, queue id, flag, queue offset, physical offset, sysFlag, born
    timestamp, born host, store timestamp, `after_store_time` and body length.
    """

    after_store_time: bytes
    size_bytes: int
    magic: int
    flag: int
    sys_flag: int
    born_host_raw: bytes
    topic_part: bytes
    pack_prefix: Pack


def make_template(  # noqa: PLR0917
    flag: int,
    sys_flag: int,
    born_host_raw: bytes,
    store_host_raw: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    topic: bytes,
    version: int,
) -> RecordTemplate:
    """Return a template for messages with these fields; checks nothing.

    Raises `struct.error` if a number is out of range.
    """
    pack_prefix, pack_after_store_time, fixed_bytes = _PREFIX_CODECS[sys_flag & IPV6_BITS]
    topic_bytes = len(topic)
    return _new_tuple(
        RecordTemplate,
        (
            pack_after_store_time(store_host_raw, reconsume_times, prepared_transaction_offset),
            fixed_bytes + version + topic_bytes,
            MAGIC_V1 if version == 1 else MAGIC_V2,
            flag,
            sys_flag,
            born_host_raw,
            topic_bytes.to_bytes(version, "big") + topic,
            pack_prefix,
        ),
    )


def template_of(message: Message) -> RecordTemplate | None:
    """Return a template for fast paths; None unless the message is of version 1 and has IPv4 hosts."""
    _, _, flag, _, _, sys_flag, _, born, _, stored, times, prepared, _, topic, _, version = message
    return _plain_template(flag, sys_flag, born, stored, times, prepared, topic, version)


# Every batch asks for one. The arguments come from clients, so the cache is bounded.
@lru_cache(maxsize=1024)
def _plain_template(  # noqa: PLR0917
    flag: int, sys_flag: int, born: bytes, stored: bytes, times: int, prepared: int, name: str, version: int
) -> RecordTemplate | None:
    topic = name.encode()
    if version != 1 or not 0 < len(topic) <= TOPIC_BYTES_MAX_V1 or sys_flag & IPV6_BITS:
        return None
    return make_template(flag, sys_flag, born, stored, times, prepared, topic, version)


# Rows and runs are plain tuples: creating one takes a third of the time of a named tuple.
Row = tuple[RecordTemplate, tuple[str, int], int, int, bytes, bytes]
"""One message of a run: its template, queue, born timestamp, body CRC, body and properties."""

Run = tuple[bytes, list[tuple[int, int]]]
"""Consecutive records; for each its physical offset and its queue offset."""


def record_parts(  # noqa: PLR0917
    template: RecordTemplate,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    born_ms: int,
    store_ms: int,
    body_crc: int,
    body: bytes,
    body_bytes: int,
    properties: bytes,
    properties_bytes: int,
) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Return the bytes of one record in five parts, for the caller to join with those of other records.

    Callers know the lengths of body and properties already; they are passed in so that each is taken once. Raises
    `struct.error` if a number is out of range.
    """
    after_store_time, size_bytes, magic, flag, sys_flag, born, topic_part, pack_prefix = template
    prefix = pack_prefix(
        size_bytes + body_bytes + properties_bytes,
        magic,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_ms,
        born,
        store_ms,
        after_store_time,
        body_bytes,
    )
    return prefix, body, topic_part, _pack_properties_length(properties_bytes), properties


def encode_run(
    rows: Sequence[Row], queue_offsets: dict[tuple[str, int], int], physical_offset: int, store_ms: int, room_bytes: int
) -> Run:
    """Return the records of the first rows, as many as fit into `room_bytes`; advances `queue_offsets`.

    The cost of a fast send: tests/test_hot_path_operations.py counts its calls, so nothing is called twice here.
    """
    parts: list[bytes] = []
    places: list[tuple[int, int]] = []
    end = physical_offset + room_bytes
    for template, queue, born_ms, body_crc, body, properties in rows:
        body_bytes, properties_bytes = len(body), len(properties)
        size_bytes = template[1] + body_bytes + properties_bytes
        if physical_offset + size_bytes > end:
            break
        try:
            queue_offset = queue_offsets[queue]
        except KeyError:
            queue_offset = 0
        parts += record_parts(
            template,
            queue[1],
            queue_offset,
            physical_offset,
            born_ms,
            store_ms,
            body_crc,
            body,
            body_bytes,
            properties,
            properties_bytes,
        )
        queue_offsets[queue] = queue_offset + 1  # only now: a number out of range raises in `record_parts`
        places += ((physical_offset, queue_offset),)
        physical_offset += size_bytes
    return b"".join(parts), places
