"""Writes logs of millions of messages in seconds: one record as a template, all that differs filled in by columns.

All records have one size. Messages go round the queues; each has a key, a unique key and tags of its own, and its
store time is a millisecond after that of the twentieth message before it. Nothing but the log is written: opening the
store derives the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.make_log import START_MS, template
from orbitlog.formats.records.message import RECORD_PREFIX, encode_message
from orbitlog.formats.records.message_scan import encode_blank, fits
from orbitlog.formats.store_tree import COMMITLOG, offset_file_name

_CHUNK = 1 << 16
_PER_MS = 20

Records = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class LogShape:
    """How many messages, of what size, in how many queues."""

    count: int
    body_bytes: int
    topics: int = 16
    queues: int = 8
    segment_bytes: int = 1 << 30

    def topic(self, queue_number: int) -> str:
        return f"TopicOrderEvents{queue_number // self.queues:05d}"

    def key(self, number: int) -> str:
        return f"order-{number:010d}"

    @property
    def record_bytes(self) -> int:
        return len(self._template())

    @property
    def records_per_segment(self) -> int:
        count = self.segment_bytes // self.record_bytes
        return count if fits(self.record_bytes, self.segment_bytes - (count - 1) * self.record_bytes) else count - 1

    @property
    def log_bytes(self) -> int:
        return self.count * self.record_bytes

    def _template(self) -> bytes:
        return encode_message(template(0, b"x" * self.body_bytes, self.topic(0), 0))


def write_log(root: Path, shape: LogShape) -> None:
    """Write the segments of a store that has none."""
    directory = root / COMMITLOG
    directory.mkdir(parents=True)
    for first in range(0, shape.count, shape.records_per_segment):
        last = min(first + shape.records_per_segment, shape.count)
        base = first // shape.records_per_segment * shape.segment_bytes
        with (directory / offset_file_name(base)).open("wb") as file:
            for records in _chunks(shape, first, last, base):
                file.write(records.data)
            if last - first == shape.records_per_segment and last < shape.count:
                file.write(encode_blank(shape.segment_bytes - file.tell()))
            file.truncate(shape.segment_bytes)


def _chunks(shape: LogShape, first: int, last: int, base: int) -> Iterator[Records]:
    raw = shape._template()
    places = {name: RECORD_PREFIX.position(name) for name in ("queue_id", "queue_offset", "physical_offset")}
    stored = RECORD_PREFIX.position("store_timestamp_ms")
    topic_digits = raw.index(b"TopicOrderEvents") + len(b"TopicOrderEvents")
    key_digits = raw.index(b"order-") + len(b"order-")
    unique_digits = raw.index(b"7F0000011A2B4E0E2F2A49F7") + 24
    tag_digit = raw.index(b"\2Tag") + 4 if b"\2Tag" in raw else raw.index(b"\1Tag") + 4
    for start in range(first, last, _CHUNK):
        numbers = np.arange(start, min(start + _CHUNK, last), dtype=np.int64)
        records = np.tile(np.frombuffer(raw, np.uint8), (len(numbers), 1))
        queues = numbers % (shape.topics * shape.queues)
        _put(records, places["queue_id"], (queues % shape.queues).astype(">i4"))
        _put(records, places["queue_offset"], (numbers // (shape.topics * shape.queues)).astype(">i8"))
        _put(records, places["physical_offset"], (base + (numbers - first) * len(raw)).astype(">i8"))
        _put(records, stored, (START_MS + numbers // _PER_MS).astype(">i8"))
        _put_digits(records, topic_digits, queues // shape.queues, 5, 10)
        _put_digits(records, key_digits, numbers, 10, 10)
        _put_digits(records, unique_digits, numbers, 8, 16)
        _put_digits(records, tag_digit, numbers % 10, 1, 10)
        yield records


def _put(records: Records, position: int, values: npt.NDArray[np.generic]) -> None:
    size_bytes = values.dtype.itemsize
    records[:, position : position + size_bytes] = values.view(np.uint8).reshape(len(values), size_bytes)


def _put_digits(records: Records, position: int, values: npt.NDArray[np.int64], count: int, radix: int) -> None:
    alphabet = np.frombuffer(b"0123456789ABCDEF", np.uint8)
    for digit in range(count):
        records[:, position + count - 1 - digit] = alphabet[values // radix**digit % radix]
