"""Writes the log that the benchmarks read: one full segment of ordinary messages.

Sixteen topics of eight queues, one key, a unique key, tags, `CLUSTER` and `WAIT`, bodies of one size plus or minus
16 bytes. The same seed gives the same bytes.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from zlib import crc32

from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records.message import (
    BODY_CRC_MASK,
    RECORD_PREFIX,
    Message,
    assign_fields,
    encode_message,
    make_message,
)
from orbitlog.formats.records.message_scan import encode_blank, fits
from orbitlog.formats.records.properties import encode_properties

TOPICS, QUEUES = 16, 8
START_MS = 1_760_000_000_000
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_CRC_AT, _QUEUE_ID_AT, _BORN_AT = (
    RECORD_PREFIX.position(name) for name in ("body_crc", "queue_id", "born_timestamp_ms")
)


def template(number: int, body: bytes, topic: str, queue_id: int) -> Message:
    properties = encode_properties(
        {
            "KEYS": f"order-{number:010d}",
            "UNIQ_KEY": f"7F0000011A2B4E0E2F2A49F7{number & 0xFFFFFFFF:08X}",
            "CLUSTER": "DefaultCluster",
            "TAGS": f"Tag{number % 10}",
            "WAIT": "true",
        }
    )
    return make_message(
        topic,
        body,
        properties=properties,
        queue_id=queue_id,
        born_host=parse_host("127.0.0.1:50000"),
        store_host=parse_host("127.0.0.1:10911"),
        born_timestamp_ms=START_MS + number // 20,
    )


class _Forms:
    """Records made from those of their size: all that differs has a place of its own, and is put there."""

    def __init__(self) -> None:
        self._forms: dict[int, tuple[bytes, tuple[int, ...]]] = {}

    def record(self, number: int, body: bytes, topic_number: int, queue_id: int) -> bytearray:
        form = self._forms.get(len(body))
        if form is None:
            raw = encode_message(template(0, b"\0" * len(body), "TopicOrderEvents00", 0))
            marks = (b"\0" * len(body), b"TopicOrderEvents00", b"order-0", b"49F700000000", b"Tag0")
            body_at, *others = (raw.index(mark, RECORD_PREFIX.size_bytes) for mark in marks)
            form = self._forms[len(body)] = raw, (body_at, *others)
        raw, (body_at, topic_at, key_at, unique_at, tag_at) = form
        record = bytearray(raw)
        _INT.pack_into(record, _CRC_AT, crc32(body) & BODY_CRC_MASK)
        _INT.pack_into(record, _QUEUE_ID_AT, queue_id)
        _LONG.pack_into(record, _BORN_AT, START_MS + number // 20)
        record[body_at : body_at + len(body)] = body
        record[topic_at + 16 : topic_at + 18] = b"%02d" % topic_number
        record[key_at + 6 : key_at + 16] = b"%010d" % number
        record[unique_at + 4 : unique_at + 12] = b"%08X" % (number & 0xFFFFFFFF)
        record[tag_at + 3] = 48 + number % 10
        return record


def make_segment(path: Path, *, body_bytes: int, segment_bytes: int, seed: int = 1, topics: int = TOPICS) -> int:
    """Write a segment unless it is there already; returns the number of messages. Four topics have the most."""
    counted = path.with_suffix(".count")
    if path.exists() and path.stat().st_size == segment_bytes and counted.exists():
        return int(counted.read_text())
    rng = random.Random(seed)
    pool = bytes(rng.randrange(32, 127) for _ in range(1 << 20))
    forms = _Forms()
    next_queue_offset: dict[tuple[int, int], int] = {}
    position = number = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while True:
            draw = rng.getrandbits(48)
            topic_number = (draw & 3 if draw >> 8 & 1 else draw >> 16) % topics
            queue_id = (draw >> 24) % QUEUES
            body_start = (draw >> 28) % (len(pool) - 4096)
            body = pool[body_start : body_start + body_bytes + (draw >> 40 & 31) - 16]
            record = forms.record(number, body, topic_number, queue_id)
            if not fits(len(record), segment_bytes - position):
                break
            queue = topic_number, queue_id
            queue_offset = next_queue_offset.get(queue, 0)
            next_queue_offset[queue] = queue_offset + 1
            assign_fields(
                record,
                0,
                queue_offset=queue_offset,
                physical_offset=position,
                store_timestamp_ms=START_MS + number // 20,
            )
            file.write(record)
            position += len(record)
            number += 1
        file.write(encode_blank(segment_bytes - position))
        file.truncate(segment_bytes)
    counted.write_text(str(number))
    return number
