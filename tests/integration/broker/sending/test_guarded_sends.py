"""Signed sends: the fast path stores and answers what the slow path does, and reads a verified send once."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbitlog.access.credentials import Credentials
from orbitlog.access.request_signature import signature_of
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.sending import send_templates
from orbitlog.broker.sending.fast_sends import FastSends
from orbitlog.formats.records.batch import BatchMember, encode_batch
from orbitlog.wire import header_patterns
from orbitlog.wire.codes import ResponseCode
from tests.support.compared_paths import answers, broker_at, feed_all, log_bytes, settled
from tests.support.hot_path import HotPath
from tests.support.random_sends import any_ext_fields, go, java, python
from tests.support.secured_broker import NOBODY, ROOT, SECURE

FORGERIES = ("body", "field", "signature", "no signature", "account", "secret")
REGROUPED = "regrouped"  # the same signed content, divided between the fields in another way: its signature is valid
BATCH = encode_batch([BatchMember(b"one", b"KEYS\x01k"), BatchMember(b"two")])


def signed_send(
    ext: dict[str, str],
    opaque: int,
    *,
    body: bytes = b"x" * 128,
    code: int = 310,
    forgery: str = "",
    writer: Any = java,
) -> bytes:
    """Return the frame of a send, valid unless `forgery` names what is wrong with it."""
    credentials = NOBODY if forgery == "account" else ROOT
    secret = "wrong-secret" if forgery == "secret" else credentials.secret_key
    fields = {**ext, "AccessKey": credentials.access_key}
    fields["Signature"] = signature_of(secret, dict(reversed(fields.items())), body)
    if forgery == "body":
        body = body[:-1] + b"y"
    elif forgery == "field":
        fields["e"] = str(int(fields["e"]) ^ 1) if fields.get("e", "").isdigit() else "0"
    elif forgery == "signature":
        fields["Signature"] = fields["Signature"].swapcase()
    elif forgery == "no signature":
        del fields["Signature"]
    elif forgery == REGROUPED:
        fields["a"], fields["b"] = fields.get("a", "") + fields.get("b", "")[:1], fields.get("b", "")[1:]
    header = writer({"code": code, "opaque": opaque, "flag": 0, "version": 479}, fields)
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def any_signed_send(chance: random.Random, opaque: int, writer: Any) -> bytes:
    ext = {
        name: str(value) for name, value in any_ext_fields(chance).items() if value is not None and value != "\ud800"
    }
    forgery = chance.choice((*FORGERIES, REGROUPED)) if chance.random() < 0.05 else ""
    if chance.random() < 0.05:
        return signed_send({**ext, "m": "true"}, opaque, body=BATCH, code=320, forgery=forgery, writer=writer)
    return signed_send(ext, opaque, forgery=forgery, writer=writer)


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the sends that the fast path takes without reading them a second time."""
    counts: list[int] = []
    check = FastSends._check

    def counted(self: FastSends, reads: Sequence[Any], backlog: Any, rows: list[Any], asked: Any) -> bool:
        is_one_topic = check(self, reads, backlog, rows, asked)
        counts.append(len(rows))
        return is_one_topic

    monkeypatch.setattr(FastSends, "_check", counted)
    return counts


def secured_at(root: Path, flush: str = "ASYNC_FLUSH") -> Any:
    limits = {"authenticationFailuresPerMinuteMax": "1000000"}
    return broker_at(root, flush, **{**SECURE, **limits})


@pytest.mark.parametrize(("seed", "flush"), [*((seed, "ASYNC_FLUSH") for seed in range(3)), (3, "SYNC_FLUSH")])
def test_both_paths_store_and_answer_signed_sends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, flush: str
) -> None:
    monkeypatch.setattr(send_templates, "_USES_BEFORE_PATTERN", 2)
    monkeypatch.setattr(header_patterns, "MISSES_BEFORE_PATTERN", 2)
    counts = counted_reads(monkeypatch)

    async def work() -> None:
        chance = random.Random(seed)
        sent = 0
        async with secured_at(tmp_path / "fast", flush) as fast, secured_at(tmp_path / "slow", flush) as slow:
            for _ in range(12):
                both = HotPath(fast, keeps=True), HotPath(slow, keeps=True)
                both[1].connection.incoming.fast_path = None
                writer = chance.choice([java, java, go, python])
                for _ in range(30):
                    frames = [
                        any_signed_send(chance, 10_000 + sent + each, writer)
                        for each in range(chance.choice([1, 3, 10]))
                    ]
                    sent += len(frames)
                    for path in both:
                        random.seed(sent)
                        await feed_all(path, b"".join(frames))
                        await asyncio.sleep(0)
                await settled(*both)
                assert answers(both[0]) == answers(both[1])
                for path in both:
                    path.close()
            assert log_bytes(fast) == log_bytes(slow) != b""
            assert fast.state.statistics.put_messages.total == slow.state.statistics.put_messages.total > 100
            assert fast.state.statistics.put_bytes == slow.state.statistics.put_bytes
            assert _refused(fast) == _refused(slow) > 10
            assert sum(counts) > 50, "verified sends are read once"

    asyncio.run(work())


def _refused(broker: Broker) -> int:
    assert broker._access is not None
    return broker._access.guard.refused_count


PLAIN = {
    **{"a": "P", "b": "Orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1731700000000", "h": "0"},
    **{"i": "UNIQ_KEY\x017F00000100002A9F0000000000000001\x02WAIT\x01true", "j": "0", "k": "false", "m": "false"},
}


async def learned(path: HotPath, **fields: str) -> None:
    """Send until the connection takes signed sends of these fields by a pattern with a template."""
    for number in range(2 * header_patterns.MISSES_BEFORE_PATTERN):
        path.feed(signed_send({**PLAIN, **fields}, number))
        await settled(path)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_send_within_a_run_is_refused_and_the_others_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgery: str
) -> None:
    counts = counted_reads(monkeypatch)

    async def work() -> None:
        async with secured_at(tmp_path) as broker:
            path = HotPath(broker, keeps=True)
            await learned(path)
            stored, read = broker.state.statistics.put_messages.total, sum(counts)
            run = [signed_send(PLAIN, 1000 + each, forgery=forgery if each == 20 else "") for each in range(40)]
            path.feed(b"".join(run))
            await settled(path)
            codes = {answer.opaque: answer.code for answer in answers(path) if answer.opaque >= 1000}
            assert codes.pop(1020) == ResponseCode.NO_PERMISSION
            assert codes == {1000 + each: ResponseCode.SUCCESS for each in range(40) if each != 20}
            assert broker.state.statistics.put_messages.total == stored + 39
            assert sum(counts) >= read + 20, "the sends before the forged one are read once"

    asyncio.run(work())


def test_sends_to_several_topics_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted_reads(monkeypatch)

    async def work() -> None:
        async with secured_at(tmp_path) as broker:
            path = HotPath(broker, keeps=True)
            for topic in ("Orders", "Ticks") * 2:  # the first templates end when the second topic is created
                await learned(path, b=topic)
            stored = broker.state.statistics.put_messages.total
            del counts[:]
            topics = ("Orders", "Ticks") * 10
            path.feed(b"".join(signed_send({**PLAIN, "b": topic}, 1000 + at) for at, topic in enumerate(topics)))
            assert counts == [20]
            assert broker.state.statistics.put_messages.total == stored + 20
            totals = [broker.state.statistics.find("TOPIC_PUT_NUMS", topic) for topic in ("Orders", "Ticks")]
            rounds = 2 * header_patterns.MISSES_BEFORE_PATTERN
            assert [total.total for total in totals if total] == [10 + 2 * rounds] * 2

    asyncio.run(work())


def test_changed_topic_ends_the_template_of_a_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted_reads(monkeypatch)

    async def work() -> None:
        async with secured_at(tmp_path) as broker:
            path = HotPath(broker, keeps=True)
            await learned(path)
            config = broker.state.topics.find("Orders")
            assert config is not None
            broker.state.topics.put(replace(config, read_queue_count=0, write_queue_count=0))
            del counts[:]
            path.feed(signed_send(PLAIN, 1000))
            await settled(path)
            assert answers(path)[-1].code == ResponseCode.INVALID_PARAMETER
            assert not counts
            broker.state.topics.put(config)
            path.feed(b"".join(signed_send(PLAIN, 1001 + each) for each in range(40)))
            await settled(path)
            path.feed(b"".join(signed_send(PLAIN, 1041 + each) for each in range(40)))
            assert sum(counts) >= 40, "the pattern has the new template"

    asyncio.run(work())


def test_changed_secret_ends_the_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = counted_reads(monkeypatch)

    async def work() -> None:
        async with secured_at(tmp_path) as broker:
            path = HotPath(broker, keeps=True)
            await learned(path)
            assert broker._access is not None
            broker._access.change_users(lambda table: table.update_user(ROOT.access_key, {"password": "changed"}))
            del counts[:]
            path.feed(signed_send(PLAIN, 1000))
            assert answers(path)[-1].code == ResponseCode.NO_PERMISSION
            monkeypatch.setitem(globals(), "ROOT", Credentials(ROOT.access_key, "changed"))
            path.feed(signed_send(PLAIN, 1001))
            assert answers(path)[-1].code == ResponseCode.SUCCESS
            assert not counts

    asyncio.run(work())
