"""Appending together: encodes the records of several messages before the first one is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from orbitlog.formats.records import flags
from orbitlog.formats.records.message import MeasuredRecord, Message, encode_placed, measure_record
from orbitlog.formats.records.property_crc import seal_record, with_room_for_crc, without_crc
from orbitlog.store.appending.put_result import PutResult, PutStatus
from orbitlog.store.derived.light_queues import LightQueues
from orbitlog.store.derived.queue_set import QueueKey


class UnplacedRecord(NamedTuple):
    """A message whose record has no physical offset yet."""

    message: Message
    measured: MeasuredRecord
    has_crc: bool


class PlacedRecords(NamedTuple):
    """Encoded records and the result of each."""

    records: list[bytes]
    results: list[PutResult]


def measure_together(
    messages: Sequence[Message],
    light_queues: LightQueues,
    next_queue_offsets: Mapping[QueueKey, int],
    following: dict[QueueKey, int],
    *,
    always_crc: bool,
) -> list[UnplacedRecord]:
    """Measure records; those with a zero in their properties, or all of them, get a property CRC.

    The property CRC of a record stored earlier is removed. Offsets in light queues are assigned: the next ones are put
    into `following`. Raise `FormatError` if one of the messages is invalid.
    """
    unplaced = []
    for message in messages:
        assigned = light_queues.assign(message, next_queue_offsets, following)
        has_crc = always_crc or 0 in assigned.properties_raw
        convert = with_room_for_crc if has_crc else without_crc
        stored = assigned._replace(properties_raw=convert(assigned.properties_raw))
        unplaced.append(UnplacedRecord(stored, measure_record(stored), has_crc))
    return unplaced


def place_together(
    unplaced: Sequence[UnplacedRecord],
    next_queue_offsets: Mapping[QueueKey, int],
    following: dict[QueueKey, int],
    physical_offset: int,
    now_ms: int,
) -> PlacedRecords:
    """Encode consecutive records from `physical_offset` on; `following` gets the next queue offsets."""
    records, results = [], []
    for message, measured, has_crc in unplaced:
        queue_key, queue_offset = (message.topic, message.queue_id), 0
        if flags.enters_queue(message.sys_flag):
            queue_offset = following.get(queue_key, next_queue_offsets.get(queue_key, 0))
            following[queue_key] = queue_offset + 1
        record = encode_placed(measured, queue_offset, physical_offset, now_ms)
        records.append(seal_record(record) if has_crc else record)
        results.append(PutResult(PutStatus.PUT_OK, physical_offset, queue_offset, now_ms, len(record)))
        physical_offset += len(record)
    return PlacedRecords(records, results)
