"""One record at a time in plain Python: what the append path and the command line pay."""

from __future__ import annotations

import struct
from zlib import crc32

from benchmarks.make_log import template
from benchmarks.measure import Figure, Report, best_of
from orbitlog.formats.derive import DeriveRules, index_hashes, queue_units
from orbitlog.formats.message import Message, decode_message, encode_message

_PREFIX = struct.Struct(">iIiiiqqiq8sq8siqi")


def run(report: Report, *, body_bytes: int, count: int) -> None:
    messages = [
        template(number, b"x" * body_bytes, f"TopicOrderEvents{number % 16:02d}", number % 8) for number in range(1000)
    ]
    records = [encode_message(message) for message in messages]
    rounds = count // len(messages)
    group = f"one record at a time, plain Python, {body_bytes} B bodies"
    size_bytes = sum(map(len, records)) * rounds

    def measure(name: str, work: object) -> None:
        assert callable(work)
        seconds = best_of(lambda: [work() for _ in range(rounds)], rounds=3)
        report.add(Figure(group, name, seconds, rounds * len(messages), size_bytes))

    measure("baseline: read", lambda: [bytes(memoryview(record)) for record in records])
    measure("baseline: struct loop", lambda: [naive_decode(record) for record in records])
    measure("encode", lambda: [encode_message(message) for message in messages])
    measure("decode", lambda: [decode_message(record) for record in records])
    measure("decode without CRC", lambda: [decode_message(record, check_crc=False) for record in records])
    measure("decode and properties map", lambda: [decode_message(record).properties for record in records])
    rules = DeriveRules()
    measure("derive queue unit and index keys", lambda: [derive(message, rules) for message in messages])


def derive(message: Message, rules: DeriveRules) -> object:
    return queue_units(message, rules), index_hashes(message, rules.compat)


def naive_decode(record: bytes) -> object:
    """What one would write first: unpack, slice, trust every length."""
    fields = _PREFIX.unpack_from(record)
    body_end = 88 + fields[14]
    topic_end = body_end + 1 + record[body_end]
    crc32(record[88:body_end])
    return fields, record[88:body_end], record[body_end + 1 : topic_end], record[topic_end + 2 :]
