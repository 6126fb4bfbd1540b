"""One record at a time in plain Python: what the append path and the command line pay."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock
from zlib import crc32

from benchmarks.make_log import template
from benchmarks.measure import Figure, Report, best_of
from orbitlog.formats.derived.derive import DeriveRules, index_hashes, queue_units
from orbitlog.formats.records import compression
from orbitlog.formats.records.compression import compress_body, inflate_body
from orbitlog.formats.records.flags import CompressionType, with_compression
from orbitlog.formats.records.message import Message, decode_message, encode_message

_PREFIX = struct.Struct(">iIiiiqqiq8sq8siqi")


def run(report: Report, *, body_bytes: int, count: int) -> None:
    messages = [
        template(number, b"x" * body_bytes, f"TopicOrderEvents{number % 16:02d}", number % 8) for number in range(1000)
    ]
    records = [encode_message(message) for message in messages]
    rounds = count // len(messages)
    group = f"one record at a time, plain Python, {body_bytes} B bodies"
    size_bytes = sum(map(len, records)) * rounds

    def measure(name: str, one: Callable[[Any], object], items: Sequence[object]) -> None:
        # Nothing is kept: a list of results would measure the allocator.
        def work() -> None:
            deque(map(one, items), maxlen=0)

        seconds = best_of(lambda: [work() for _ in range(rounds)], rounds=5)
        report.add(Figure(group, name, seconds, rounds * len(messages), size_bytes))

    rules = DeriveRules()
    measure("baseline: read", bytearray, records)
    measure("baseline: struct loop", naive_decode, records)
    measure("encode", encode_message, messages)
    measure("decode", decode_message, records)
    measure("decode without CRC", partial(decode_message, check_crc=False), records)
    measure("decode and properties map", lambda record: decode_message(record).properties, records)
    measure("derive queue unit and index keys", partial(derive, rules=rules), messages)


def run_bodies(report: Report, *, count: int) -> None:
    """Inflate a body of 4 KB of JSON, as a consumer does; LZ4 with the package `lz4` and without it."""
    orders = (f'{{"orderId":{number * 7919},"customer":"c-{number}","status":"PAID"}},' for number in range(100))
    body = "".join(orders).encode()[:4096]
    group = "inflate a body of 4 KB"

    def measure(name: str, kind: CompressionType) -> None:
        inflate = partial(inflate_body, compress_body(body, kind), with_compression(0, kind))
        assert inflate() == body
        seconds = best_of(lambda: deque((inflate() for _ in range(count)), maxlen=0), rounds=5)
        report.add(Figure(group, name, seconds, count, count * len(body)))

    measure("zlib", CompressionType.ZLIB)
    measure("zstd", CompressionType.ZSTD)
    measure("LZ4 with the package lz4", CompressionType.LZ4)
    with mock.patch.object(compression, "_lz4_library", return_value=None):
        measure("LZ4 in plain Python", CompressionType.LZ4)


def derive(message: Message, rules: DeriveRules) -> object:
    return queue_units(message, rules), index_hashes(message, rules.compat)


def naive_decode(record: bytes) -> object:
    """What one would write first: unpack, slice, trust every length."""
    fields = _PREFIX.unpack_from(record)
    body_end = 88 + fields[14]
    topic_end = body_end + 1 + record[body_end]
    crc32(record[88:body_end])
    return fields, record[88:body_end], record[body_end + 1 : topic_end], record[topic_end + 2 :]
