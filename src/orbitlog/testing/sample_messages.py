"""Sample messages: about a thousand, of every kind that a store can hold.

They are the same at every call except for timestamps, which start at the caller's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from orbitlog.formats import names
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.formats.hosts import Host, parse_host
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.batch import BatchMember, encode_batch, expand_batch
from orbitlog.formats.records.compression import compress_body
from orbitlog.formats.records.flags import CompressionType
from orbitlog.formats.records.message import Message, make_message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.formats.records.unique_id import UniqueId

ORDERS, TELEMETRY, NOTES = "Orders", "Telemetry", "Notes"
STORE_HOST = parse_host("127.0.0.1:10911")
_SHOP = parse_host("192.0.2.17:40112")
_SENSOR = parse_host("[2001:db8::17]:40113")
_ORDER_STATES = ("Created", "Paid", "Packed", "Shipped")
_NOTES = ("plain", "Größe und Maß", "ключ", "注文を受け付けました", "🛰 in orbit")
_ROUNDS = 250
_STEP_MS = 37


class _Sender:
    """Adds what a producer and a broker set: unique key, hosts and timestamps."""

    def __init__(self, first_ms: int) -> None:
        self._now_ms = first_ms
        self._counter = 0

    def message(
        self,
        topic: str,
        body: bytes,
        properties: dict[str, str],
        *,
        queue_id: int,
        host: Host = _SHOP,
        sys_flag: int = 0,
    ) -> Message:
        stated = {props.UNIQ_KEY: self.unique_key(host), props.CLUSTER: "DemoCluster", **properties}
        self._now_ms += _STEP_MS
        return make_message(
            topic,
            body,
            properties=stated,
            born_host=host,
            store_host=STORE_HOST,
            sys_flag=sys_flag,
            queue_id=queue_id,
            born_timestamp_ms=self._now_ms - 2,
            store_timestamp_ms=self._now_ms,
        )

    def unique_key(self, host: Host) -> str:
        self._counter += 1
        return str(UniqueId(host.address, process=4711, loader_hash=1, since_month_start_ms=0, counter=self._counter))


def sample_messages(first_ms: int) -> Iterator[Message]:
    """Yield the messages in log order, without queue offsets and physical offsets."""
    sender = _Sender(first_ms)
    for number in range(_ROUNDS):
        yield _order(sender, number)
        yield _measurement(sender, number)
        if number % 10 == 0:
            yield _note(sender, number // 10)
        if number % 50 == 7:
            yield from _batch(sender, number)
        if number % 60 == 11:
            yield _delayed(sender, number)
        if number % 80 == 3:
            yield _compressed(sender, number)
        yield _measurement(sender, number + 1)
        yield _order(sender, number + _ROUNDS)


def _order(sender: _Sender, number: int) -> Message:
    state = _ORDER_STATES[number % len(_ORDER_STATES)]
    body = json.dumps({"order": number, "state": state, "items": [number % 7, number % 11], "price": number * 3.5})
    keys = {props.KEYS: f"order-{number:04d} customer-{number % 40}", props.TAGS: state}
    return sender.message(ORDERS, body.encode(), keys, queue_id=number % 4)


def _measurement(sender: _Sender, number: int) -> Message:
    body = f"sensor={number % 16} temperature={18 + number % 9}.{number % 10}".encode()
    return sender.message(TELEMETRY, body, {}, queue_id=number % 8, host=_SENSOR)


def _note(sender: _Sender, number: int) -> Message:
    text = _NOTES[number % len(_NOTES)]
    keys = {props.KEYS: f"note-{number} {text.split()[0]}", props.TAGS: text[:8]}
    return sender.message(NOTES, text.encode(), keys, queue_id=0)


def _batch(sender: _Sender, number: int) -> list[Message]:
    members = [
        BatchMember(
            f"batch {number}, member {member}".encode() if member else b"",
            encode_properties({props.UNIQ_KEY: sender.unique_key(_SHOP), props.KEYS: f"batch-{number}-{member}"}),
        )
        for member in range(5)
    ]
    return expand_batch(sender.message(NOTES, encode_batch(members), {}, queue_id=1))


def _delayed(sender: _Sender, number: int) -> Message:
    """Return a delayed message, as stored in the schedule topic in the queue of its delay level."""
    level = number % STANDARD_LEVELS.max_level + 1
    waits = {
        props.DELAY: str(level),
        props.REAL_TOPIC: ORDERS,
        props.REAL_QUEUE_ID: "0",
        props.KEYS: f"reminder-{number}",
        props.TAGS: "Reminder",
    }
    return sender.message(names.SCHEDULE_TOPIC, b"pay, please", waits, queue_id=level - 1)


def _compressed(sender: _Sender, number: int) -> Message:
    kinds = (CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD)
    kind = kinds[number // 80 % len(kinds)]
    text = f"A long report, compressed with {kind.name}. " * 200
    body = compress_body(text.encode(), kind)
    return sender.message(NOTES, body, {props.TAGS: "Report"}, queue_id=0, sys_flag=flags.with_compression(0, kind))
