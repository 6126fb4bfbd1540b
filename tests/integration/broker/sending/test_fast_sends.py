"""The short way of sends and the long one: the same records, the same answers, the same counts, whatever is sent."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from orbitlog.broker.sending import fast_sends as quick_sends
from orbitlog.broker.sending import handle_send
from orbitlog.broker.sending import send_templates as send_lanes
from orbitlog.broker.transactions.fast_transactions import QuickTransactions
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.wire.command import Command, Serialization, encode_command
from tests.support.broker_bytes import NOW_MS, answers, broker_at, log_bytes, settled
from tests.support.hot_path import HotPath

UNIQUE = "UNIQ_KEY\x017F00000100002A9F0000000000000001\x02"
USUAL = f"KEYS\x01k\x02{UNIQUE}WAIT\x01true\x02TAGS\x01tag"
HALF = USUAL + "\x02TRAN_MSG\x01true\x02PGROUP\x01P"

# Properties as they come from clients, and as they should not.
PROPERTIES = [
    *([USUAL] * 8),
    USUAL + "\x02",
    UNIQUE,
    UNIQUE[:-1],
    "WAIT\x01true",
    "",
    "UNIQ_KEY\x01\x02WAIT\x01true",
    USUAL + "\x02DELAY\x013",
    USUAL + "\x02DELAY\x01x",
    USUAL + "\x02XDELAY\x013",
    USUAL + "\x02CLUSTER\x01other",
    *([HALF] * 4),
    HALF + "\x02",
    "TRAN_MSG\x01true\x02PGROUP\x01P",
    "TRAN_MSG\x01true\x02UNIQ_KEY\x01\x02PGROUP\x01P",
    HALF + "\x02TRAN_MSG\x01false",
    USUAL + "\x02TRAN_MSG\x01TRUE",
    USUAL + "\x02TRAN_MSG\x01",
    HALF + "\x02DELAY\x013",
    HALF + "\x02POP_CK\x01x",
    HALF + "\x02INNER_NUM\x012",
    HALF + "\x02CLUSTER\x01other",
    HALF + "\x02WAIT\x01false",
    HALF + "\x02KEYS\x01again\x02UNIQ_KEY\x01other",
    HALF + "\x02REAL_TOPIC\x01Other\x02REAL_QID\x019\x02__transactionId__\x01other",
    HALF + "\x02TRAN_PREPARED_QUEUE_OFFSET\x010\x02TRANSACTION_CHECK_TIMES\x013",
    HALF + '\x02quoted\x01"a\\b"\x02umlaut\x01Ümläut 😀',
    HALF + "\x02zero\x01\0",
    HALF + "\x02empty\x01\x02odd",
    HALF + "\x02big\x01" + "x" * 32_600,
    HALF.replace("7F00", 'q"Ü'),
    USUAL + "\x02INNER_NUM\x012",
    USUAL + "\x02name\x01INNER_NUM",
    USUAL + "\x02TIMER_DELAY_SEC\x012",
    USUAL + "\x02MSG_REGION\x01here\x02TRACE_ON\x01false",
    USUAL + "\x02POP_CK\x01x",
    f"{UNIQUE}WAIT\x01false",
    USUAL + '\x02quoted\x01"a\\b"',
    USUAL + "\x02umlaut\x01Ümläut 😀",
    USUAL + "\x02zero\x01\0",
    USUAL + "\x02lines\x01a\nb\tc",
    USUAL + "\x02big\x01" + "x" * 33_000,
    USUAL + "\x02odd",
    "\x02\x02" + USUAL,
]


def java(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    """In the order of the names, numbers as text."""
    known = {"serializeTypeCurrentRPC": "JSON", "language": "JAVA", "extFields": dict(sorted(ext.items())), **fields}
    return orjson.dumps(dict(sorted(known.items())))


def go(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    order = ("code", "language", "version", "opaque", "flag", "remark")
    known = {"language": "GO", "remark": "", **fields}
    return orjson.dumps({name: known[name] for name in order} | {"extFields": dict(sorted(ext.items()))})


def node(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    """Numbers and booleans as such."""
    values = {name: _bare(text) for name, text in ext.items()}
    return orjson.dumps({**fields, "language": "NODE_JS", "extFields": values})


def cpp(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    known = {"language": "CPP", **fields, "extFields": dict(sorted(ext.items()))}
    return orjson.dumps(dict(sorted(known.items()))) + b"\n"


def python(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    return orjson.dumps({**fields, "language": "PYTHON", "extFields": ext})


def spaced(fields: dict[str, Any], ext: dict[str, Any]) -> bytes:
    return orjson.dumps({**fields, "extFields": ext}, option=orjson.OPT_INDENT_2)


def _bare(text: Any) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 12 else text


Writer = Callable[[dict[str, Any], dict[str, Any]], bytes]
WRITERS: list[Writer] = [java, java, java, go, node, cpp, python, spaced]
VALUES: list[Any] = ["", "0", "1", "-1", "+1", "007", " 1", "1_0", "٣", "²", "2147483648", "9" * 19, "9" * 30]
VALUES += ["true", "x", 0, 1, 3, -1, 1.0, True, False, None, "\ud800", [], {}, "%RETRY%G", "TBW102", "Fresh"]
VALUES += ["rmq_sys_wheel_timer"]


ODD_NUMBERS: list[Any] = [0.0, False, True, "0", 2**40, -(2**40), -1, 1, 2, 3, 310.0, "310", 11, [0]]


def any_ext_fields(chance: random.Random) -> dict[str, Any]:
    ext: dict[str, Any] = {
        "a": chance.choice(["P", "P", "Q"]),
        "b": chance.choice(["Orders", "Orders", "Orders", "Ticks"]),
        "c": "TBW102",
        "d": "4",
        "e": chance.choice(["0", "1", "2", "3"]),
        "f": chance.choice(["0"] * 8 + ["1", "256", "4", "8", "16", "128"]),
        "g": chance.choice([str(NOW_MS), str(NOW_MS + 1), "1"]),
        "h": chance.choice(["0"] * 6 + ["7", "-7"]),
        "i": chance.choice(PROPERTIES),
        "j": "0",
        "k": "false",
        "m": "false",
    }
    if chance.random() < 0.5:
        return ext | {"a": "P", "b": "Orders", "f": "0", "h": "0", "n": "broker-a"}
    if chance.random() < 0.2:
        return ext | {"f": "4", "i": HALF, "n": "broker-a"}
    if chance.random() < 0.5:
        ext["n"] = "broker-a"
    if chance.random() < 0.2:
        ext["l"] = "16"
    if chance.random() < 0.25:
        name = chance.choice([*"abcdefghijklmn", "z"])
        if chance.random() < 0.3:
            ext.pop(name, None)
        else:
            ext[name] = chance.choice(VALUES)
    return ext


def any_frame(chance: random.Random, opaque: int, write: Writer) -> bytes:
    """A send, mostly an ordinary one; the number at which its answer is known is `opaque`."""
    ext = any_ext_fields(chance)
    body = b"x" * chance.choice([1, 10, 128, 128, 128, 5000])
    fields: dict[str, Any] = {"code": 310, "opaque": opaque, "flag": 0, "version": 479}
    odds = chance.random()
    if odds < 0.05:
        fields["code"] = 320
        body = encode_batch([BatchMember(b"one", b"KEYS\x01k"), BatchMember(b"two")])
        ext["m"] = "true"
    elif odds < 0.1:
        fields["flag"] = chance.choice([2, 2, 3, 4])
    elif odds < 0.12:
        body = b"" if chance.random() < 0.5 else bytes(10_000)
    elif odds < 0.14:
        fields[chance.choice(["flag", "version", "opaque"])] = chance.choice(ODD_NUMBERS)
    elif odds < 0.15:
        fields["opaque"] = -opaque
    elif odds < 0.16:
        texts = {name: str(text) for name, text in ext.items() if text is not None and text != "\ud800"}
        return encode_command(Command(310, opaque, ext_fields=texts, body=body, serialization=Serialization.BINARY))
    try:
        header = (write if chance.random() < 0.9 else chance.choice(WRITERS))(fields, ext)
    except (TypeError, orjson.JSONEncodeError):
        header = python({**fields}, {**ext, **{name: "1" for name, value in ext.items() if value == "\ud800"}})
    if chance.random() < 0.02:
        header = header.replace(b'"opaque":', b'"opaque":0', 1)
    if chance.random() < 0.02:
        header = header[:-1] + b',"code":310}'
    if chance.random() < 0.02:
        header = header.replace(b'"', b"'")
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


@pytest.mark.parametrize(("seed", "flush"), [*((seed, "ASYNC_FLUSH") for seed in range(3)), (3, "SYNC_FLUSH")])
def test_both_ways_store_and_answer_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, flush: str
) -> None:
    long_way = 0
    take = handle_send.SendHandler.__call__

    def counted(*arguments: Any) -> Any:
        nonlocal long_way
        long_way += 1
        return take(*arguments)

    monkeypatch.setattr(handle_send.SendHandler, "__call__", counted)
    monkeypatch.setattr(send_lanes, "_PATTERN_AFTER_USES", 2)
    by_text, read_by_text = send_lanes.by_text, 0

    def watched(*arguments: Any) -> Any:
        nonlocal read_by_text
        found = by_text(*arguments)
        read_by_text += found is not None
        return found

    monkeypatch.setattr(quick_sends, "by_text", watched)
    take_half, halves = QuickTransactions._half, 0

    def watched_half(*arguments: Any) -> Any:
        nonlocal halves
        found = take_half(*arguments)
        halves += found is not None
        return found

    monkeypatch.setattr(QuickTransactions, "_half", watched_half)

    async def work() -> None:
        nonlocal long_way
        chance = random.Random(seed)
        async with broker_at(tmp_path / "quick", flush) as quick, broker_at(tmp_path / "long", flush) as plain:
            sent = 0
            used = []
            for _ in range(16):
                both = HotPath(quick, keeps=True), HotPath(plain, keeps=True)
                both[1].connection._quick = None
                write = chance.choice(WRITERS)
                for _ in range(20):
                    frames = [
                        any_frame(chance, 10_000 + sent + each, write) for each in range(chance.choice([1, 3, 10]))
                    ]
                    sent += len(frames)
                    counts = []
                    for path in both:
                        random.seed(sent)
                        before = long_way
                        path.feed(b"".join(frames))
                        counts.append(long_way - before)
                        await asyncio.sleep(0)
                    used.append(counts)
                    if path.transport.is_closed:
                        break
                await settled(*both)
                assert answers(both[0]) == answers(both[1])
                assert both[0].transport.is_closed == both[1].transport.is_closed
                for path in both:
                    path.close()
            assert log_bytes(quick) == log_bytes(plain) != b""
            assert quick.state.statistics.put_messages.total == plain.state.statistics.put_messages.total > 100
            assert quick.state.statistics.put_messages.times == plain.state.statistics.put_messages.times
            assert quick.state.statistics.put_bytes == plain.state.statistics.put_bytes
            assert sum(counts[0] for counts in used) < sum(counts[1] for counts in used) * 0.9, "the short way is taken"
            assert read_by_text > 20, "and headers are known by their text"
            assert halves > 20, "half messages take it, too"

    asyncio.run(work())


BATCH = encode_batch([BatchMember(b"one", b"KEYS\x01k"), BatchMember(b"two", b"KEYS\x01l")])


@pytest.mark.parametrize(
    ("code", "body", "sys_flag", "properties"),
    [(310, b"x", "0", USUAL), (320, BATCH, "0", USUAL), (310, b"x", "4", HALF)],
    ids=["single", "batch", "half"],
)
def test_each_odd_value_is_met_after_ordinary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, body: bytes, sys_flag: str, properties: str
) -> None:
    monkeypatch.setattr(send_lanes, "_PATTERN_AFTER_USES", 2)
    usual = {"code": code, "opaque": 7, "flag": 0, "version": 479}
    ext = {
        **dict.fromkeys("fhj", "0"),
        "a": "P",
        "b": "TBW102",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "g": "1",
        "f": sys_flag,
        "i": properties,
    }
    odd = [({**usual, name: value}, ext) for name in usual for value in (*ODD_NUMBERS, None)]
    odd += [(usual, {**ext, name: value}) for name in [*ext, "k", "m", "z"] for value in VALUES if value != "\ud800"]
    odd += [(usual, {**ext, "i": each}) for each in PROPERTIES]
    odd += [({**usual, "flag": 2}, ext)] * 3

    async def work() -> None:
        async with broker_at(tmp_path / "quick") as quick, broker_at(tmp_path / "long") as plain:
            for fields, ext_fields in odd:
                both = HotPath(quick, keeps=True), HotPath(plain, keeps=True)
                both[1].connection._quick = None
                for path in both:
                    random.seed(1)
                    for headers in ((usual, ext), (usual, ext), (usual, ext), (usual, ext), (fields, ext_fields)):
                        header = java(*headers)
                        path.feed(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
                await settled(*both)
                assert answers(both[0]) == answers(both[1]), (fields, ext_fields)
                for path in both:
                    path.close()
            assert log_bytes(quick) == log_bytes(plain) != b""

    asyncio.run(work())
