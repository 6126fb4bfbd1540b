"""Fast path and slow path of sends: the same records, responses and counts, whatever is sent."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from orbitlog.broker.sending import handle_send, send_rules, send_templates
from orbitlog.broker.sending.send_rules import SEND_RULES, HeaderRule, MessageRule, Refusal, Send
from orbitlog.broker.transactions.fast_transactions import FastTransactions
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, Serialization, encode_command
from tests.support.compared_paths import answers, broker_at, feed_all, log_bytes, settled
from tests.support.hot_path import HotPath
from tests.support.random_sends import (
    HALF,
    ODD_NUMBERS,
    PROPERTIES,
    USUAL,
    VALUES,
    WRITERS,
    Writer,
    any_ext_fields,
    java,
    python,
)


def any_frame(chance: random.Random, opaque: int, write: Writer) -> bytes:
    """Return a send, usually a plain one; its response has the number `opaque`."""
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
def test_both_paths_store_and_answer_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, flush: str
) -> None:
    slow_path_calls = 0
    take = handle_send.SendHandler.__call__

    def counted(*arguments: Any) -> Any:
        nonlocal slow_path_calls
        slow_path_calls += 1
        return take(*arguments)

    monkeypatch.setattr(handle_send.SendHandler, "__call__", counted)
    monkeypatch.setattr(send_templates, "_USES_BEFORE_PATTERN", 2)
    header_pattern, matched = send_templates.header_pattern, 0

    def watched_pattern(*arguments: Any) -> Any:
        pattern = header_pattern(*arguments)

        def match(header: bytes) -> Any:
            nonlocal matched
            values = pattern.match(header)
            matched += values is not None
            return values

        return None if pattern is None else pattern._replace(match=match)

    monkeypatch.setattr(send_templates, "header_pattern", watched_pattern)
    take_half, halves = FastTransactions._half, 0

    def watched_half(*arguments: Any) -> Any:
        nonlocal halves
        found = take_half(*arguments)
        halves += found is not None
        return found

    monkeypatch.setattr(FastTransactions, "_half", watched_half)

    async def work() -> None:
        nonlocal slow_path_calls
        chance = random.Random(seed)
        async with broker_at(tmp_path / "fast", flush) as fast, broker_at(tmp_path / "slow", flush) as slow:
            sent = 0
            used = []
            for _ in range(16):
                both = HotPath(fast, keeps=True), HotPath(slow, keeps=True)
                both[1].connection.incoming.fast_path = None
                write = chance.choice(WRITERS)
                for _ in range(20):
                    frames = [
                        any_frame(chance, 10_000 + sent + each, write) for each in range(chance.choice([1, 3, 10]))
                    ]
                    sent += len(frames)
                    counts = []
                    for path in both:
                        random.seed(sent)
                        before = slow_path_calls
                        await feed_all(path, b"".join(frames))
                        counts.append(slow_path_calls - before)
                        await asyncio.sleep(0)
                    used.append(counts)
                    if path.transport.is_closed:
                        break
                await settled(*both)
                assert answers(both[0]) == answers(both[1])
                assert both[0].transport.is_closed == both[1].transport.is_closed
                for path in both:
                    path.close()
            assert log_bytes(fast) == log_bytes(slow) != b""
            assert fast.state.statistics.put_messages.total == slow.state.statistics.put_messages.total > 100
            assert fast.state.statistics.put_messages.times == slow.state.statistics.put_messages.times
            assert fast.state.statistics.put_bytes == slow.state.statistics.put_bytes
            assert sum(counts[0] for counts in used) < sum(counts[1] for counts in used) * 0.9, "the fast path is taken"
            assert matched > 20, "headers are read by patterns"
            assert halves > 20, "half messages take the fast path"

    asyncio.run(work())


BATCH = encode_batch([BatchMember(b"one", b"KEYS\x01k"), BatchMember(b"two", b"KEYS\x01l")])


@pytest.mark.parametrize(
    ("code", "body", "sys_flag", "properties"),
    [(310, b"x", "0", USUAL), (320, BATCH, "0", USUAL), (310, b"x", "4", HALF)],
    ids=["single", "batch", "half"],
)
def test_both_paths_agree_on_each_odd_value_after_plain_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, body: bytes, sys_flag: str, properties: str
) -> None:
    monkeypatch.setattr(send_templates, "_USES_BEFORE_PATTERN", 2)
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
        async with broker_at(tmp_path / "fast") as fast, broker_at(tmp_path / "slow") as slow:
            for fields, ext_fields in odd:
                both = HotPath(fast, keeps=True), HotPath(slow, keeps=True)
                both[1].connection.incoming.fast_path = None
                for path in both:
                    random.seed(1)
                    for headers in ((usual, ext), (usual, ext), (usual, ext), (usual, ext), (fields, ext_fields)):
                        header = java(*headers)
                        frame = struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
                        await feed_all(path, frame)
                await settled(*both)
                assert answers(both[0]) == answers(both[1]), (fields, ext_fields)
                for path in both:
                    path.close()
            assert log_bytes(fast) == log_bytes(slow) != b""

    asyncio.run(work())


def test_new_message_rule_is_obeyed_by_both_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Refusal(ResponseCode.NO_PERMISSION, "quota exceeded")
    rule = MessageRule("quota", lambda send, body, properties: refusal if b"over" in body else None)
    monkeypatch.setattr(send_rules, "SEND_RULES", (*SEND_RULES, rule))
    over = encode_batch([BatchMember(b"over"), BatchMember(b"two")])

    async def work() -> None:
        async with broker_at(tmp_path) as broker:
            for kind, body, refused in ((single, b"x", b"over"), (half, b"x", b"over"), (batch, BATCH, over)):
                path = HotPath(broker, keeps=True)
                bodies = [body, body, body, refused, body, refused]
                path.feed(kind(1, body))  # the slow path leaves a template
                await settled(path)
                slow_path_calls = count_calls(monkeypatch, handle_send.SendHandler)
                path.feed(b"".join(kind(number, each) for number, each in enumerate(bodies, 2)))
                await settled(path)
                refused_codes = [answer.code for answer in answers(path) if answer.remark == refusal.remark]
                assert refused_codes == [refusal.code] * 2
                assert [answer.code for answer in answers(path)].count(ResponseCode.SUCCESS) == 5
                assert slow_path_calls() == 2, "only the messages that the rule concerns take the slow path"
                path.close()

    asyncio.run(work())


def test_new_header_rule_is_obeyed_by_both_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []

    def check(send: Send) -> Refusal | None:
        group = send.header.producer_group
        checked.append(group)
        return Refusal(ResponseCode.NO_PERMISSION, f"{group} may not send") if group == "Denied" else None

    rule = HeaderRule("access", frozenset({"producer_group"}), check, before_topic=True)
    monkeypatch.setattr(send_rules, "SEND_RULES", (rule, *SEND_RULES))

    async def work() -> None:
        async with broker_at(tmp_path) as broker:
            for number, kind in enumerate((single, half, batch)):
                path, body = HotPath(broker, keeps=True), BATCH if kind is batch else b"x"
                path.feed(kind(1, body))
                await settled(path)
                path.feed(b"".join(kind(opaque, body) for opaque in range(2, 6)))
                assert checked == ["P", "Denied"] * number + ["P"], "evaluated once, then cached by the template"
                path.feed(kind(6, body, a="Denied"))
                await settled(path)
                assert checked == ["P", "Denied"] * (number + 1)
                assert [answer.code for answer in answers(path)] == [0] * 5 + [ResponseCode.NO_PERMISSION]
                path.close()

    asyncio.run(work())


def test_changed_limit_is_obeyed_by_the_fast_path(tmp_path: Path) -> None:
    async def work() -> None:
        async with broker_at(tmp_path) as broker:
            large = encode_batch([BatchMember(b"x" * 5000)])
            for kind, body in ((single, b"x" * 5000), (half, b"x" * 5000), (batch, large)):
                path = HotPath(broker, keeps=True)
                path.feed(kind(1, body))
                await settled(path)
                path.feed(kind(2, body))
                broker.state.settings.change({"maxMessageSize": "4096"})
                path.feed(kind(3, body))
                broker.state.settings.change({"maxMessageSize": "8000"})
                path.feed(kind(4, body) + kind(5, body))
                assert [answer.code for answer in answers(path)] == [0, 0, ResponseCode.MESSAGE_ILLEGAL, 0, 0]
                path.close()

    asyncio.run(work())


def single(opaque: int, body: bytes, **changed: str) -> bytes:
    return _send(310, opaque, body, {"f": "0", "i": USUAL, **changed})


def half(opaque: int, body: bytes, **changed: str) -> bytes:
    return _send(310, opaque, body, {"f": "4", "i": HALF, **changed})


def batch(opaque: int, body: bytes, **changed: str) -> bytes:
    return _send(320, opaque, body, {"f": "0", "i": USUAL, "m": "true", **changed})


def _send(code: int, opaque: int, body: bytes, changed: dict[str, str]) -> bytes:
    ext = {**dict.fromkeys("hj", "0"), "a": "P", "b": "Orders", "c": "TBW102", "d": "4", "e": "1", "g": "1", **changed}
    header = java({"code": code, "opaque": opaque, "flag": 0, "version": 479}, ext)
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def count_calls(monkeypatch: pytest.MonkeyPatch, handler: type) -> Callable[[], int]:
    """Count calls of a handler from now on."""
    calls, serve = 0, handler.__call__

    def counted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return serve(*arguments)

    monkeypatch.setattr(handler, "__call__", counted)
    return lambda: calls
