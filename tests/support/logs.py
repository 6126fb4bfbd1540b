"""Segments made for the contract suite: every kind of record, close together."""

from __future__ import annotations

import random
from dataclasses import dataclass

from orbitlog.formats import names
from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records import flags
from orbitlog.formats.records.dledger import DLedgerEntry, encode_entry_header, encode_file_end
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import Message, encode_message, make_message
from orbitlog.formats.records.message_scan import encode_blank, fits

IPV4, IPV6 = parse_host("10.0.0.7:4711"), parse_host("[2001:db8::7]:4711")
LONG_TOPIC = names.pop_retry_topic("g" * 100, "t" * 60)
KINDS = ("plain", "ipv6-born", "ipv6-both", "v2", "empty", "prepared", "committed", "rolled-back", "delayed", "odd")


def make_kind(kind: str, number: int) -> Message:
    """Make one message of a kind; all kinds have keys and tags but those that are about having none."""
    properties = {"KEYS": f"k{number}  é{number}", "UNIQ_KEY": f"U{number:031d}", "TAGS": f"标签{number % 3}"}
    common = {"store_timestamp_ms": 1_700_000_000_000 + 700 * number, "queue_id": number % 3}
    body = bytes([number % 251]) * (number * 37 % 300)
    match kind:
        case "ipv6-born":
            return make_message("V6", body, properties=properties, born_host=IPV6, store_host=IPV4, **common)
        case "ipv6-both":
            return make_message("V6", body, properties=properties, born_host=IPV6, store_host=IPV6, **common)
        case "v2":
            return make_message(LONG_TOPIC, body, properties=properties, born_host=IPV4, store_host=IPV6, **common)
        case "empty":
            return make_message("E", b"", **common)
        case "prepared" | "committed" | "rolled-back":
            state = {"prepared": "PREPARED", "committed": "COMMIT", "rolled-back": "ROLLBACK"}[kind]
            sys_flag = int(flags.TransactionType[state])
            return make_message("Tx", body, properties=properties, sys_flag=sys_flag, **common)
        case "delayed":
            level = ("1", "18", "25", "0", "-3", "x", "+2", "99999999999")[number % 8]
            waiting = {**properties, "DELAY": level, "REAL_TOPIC": "T"}
            return make_message(names.SCHEDULE_TOPIC, body, properties=waiting, **common)
        case "odd":
            raw = (
                b"\x02\x01\x02novalue\x01\x02\x01noname\x02plain\x02TAGS\x01a\x02TAGS\x01b\x01c\x02"
                b"KEYS\x01 x  y \x02bad\x01\xff\xfe",
                b"TAGS\x01\xf0\x9f\x98\x02KEYS\x01\xed\xa0\x80 \xc3\x28\x02UNIQ_KEY\x01polygenelubricants",
                b"\0TAGS\x01zero\x02KEYS\x01\0 \0\x02" + b"long" * 40 + b"\x01" + b"v" * 200,
                b"T\x01#\x02DELAY\x015\x02UNIQ_KEX\x01no\x02TAGT\x01no\x02KEYT\x01no",
            )[number % 4]
            return make_message("Odd", body, properties=raw, **common)
        case _:
            return make_message("Plain", body, properties=properties, born_host=IPV4, store_host=IPV4, **common)


@dataclass(frozen=True)
class Log:
    """Segments of a made log, by their base, and the messages in it."""

    segments: list[tuple[int, bytes]]
    messages: list[Message]


def make_log(
    kinds: list[str],
    *,
    segment_bytes: int = 4096,
    first_queue_offset: int = 0,
    log_format: LogFormat = LogFormat.ORDINARY,
    first_base: int = 0,
) -> Log:
    """Write messages into segments as a broker does: queue offsets by queue, BLANK if the next does not fit."""
    segments: list[tuple[int, bytes]] = []
    messages: list[Message] = []
    data, base, header_bytes = b"", first_base, log_format.header_bytes
    next_offsets: dict[tuple[str, int], int] = {}
    for number, kind in enumerate(kinds):
        message = make_kind(kind, number)
        size = len(encode_message(message))
        if not fits(header_bytes + size, segment_bytes - len(data)):
            segments.append((base, _full(data, segment_bytes, log_format)))
            data, base = b"", base + segment_bytes
        queue = message.topic, message.queue_id
        enters = message.transaction_type.enters_queue
        queue_offset = next_offsets.get(queue, first_queue_offset) if enters else 0
        if enters:
            next_offsets[queue] = queue_offset + 1
        physical_offset = base + len(data) + header_bytes
        messages.append(message._replace(queue_offset=queue_offset, physical_offset=physical_offset))
        if log_format is LogFormat.DLEDGER:
            data += encode_entry_header(DLedgerEntry(number, 1, base + len(data), size))
        data += encode_message(messages[-1])
    segments.append((base, data.ljust(segment_bytes, b"\0")))
    return Log(segments, messages)


def _full(data: bytes, segment_bytes: int, log_format: LogFormat) -> bytes:
    if log_format is LogFormat.DLEDGER:
        return data + encode_file_end(segment_bytes - len(data))
    return (data + encode_blank(segment_bytes - len(data))).ljust(segment_bytes, b"\xda")


def random_kinds(count: int, seed: int) -> list[str]:
    return random.Random(seed).choices(KINDS, k=count)
