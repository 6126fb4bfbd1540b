"""Pending messages: their cost for other sends, delivery rate, transactions, and SQL filters.

Broker and client share a process and a core, so sends per second are not those of `make compare`: only their ratio is
meaningful.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.measure import Figure, Reading, Report, best_of
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.tables.clients import parse_subscription
from orbitlog.filters.sql_filter import SqlFilter
from orbitlog.formats import names
from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.formats.records.properties import encode_properties
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.send_headers import SendMessageV2Request

_IN_FLIGHT = 64
_ROUNDS = 9
_BODY = b"x" * 200
_SECONDS_MAX = 60.0
_PREPARED, _COMMIT = 4, 8
_EXPRESSION = "a BETWEEN 5 AND 50 AND (region = 'eu' OR region IN ('us', 'ap')) AND name STARTSWITH 'or'"
_HOUR_MS = 3_600_000


class _Bench:
    """A broker, and a client that keeps some requests in flight."""

    def __init__(self, root: Path) -> None:
        self.ahead_ms = 0  # of the broker's clock, so that a benchmark can make messages due
        settings = BrokerSettings({"listenPort": "0", "mappedFileSizeCommitLog": str(1 << 28)})
        self.broker = Broker(settings, root, now_ms=lambda: _now_ms() + self.ahead_ms)
        self.client = RemotingClient()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.address[1]}"

    async def send(self, topic: str, properties: dict[str, str], sys_flag: int = 0) -> Command:
        header = SendMessageV2Request(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_count=4,
            queue_id=0,
            sys_flag=sys_flag,
            born_timestamp_ms=_now_ms(),
            flag=0,
            properties=encode_properties(properties).decode(),
        )
        command = Command(RequestCode.SEND_MESSAGE_V2, ext_fields=header.to_ext_fields(), body=_BODY)
        answer = await self.client.invoke(self.address, command, _SECONDS_MAX)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def send_plain(self, number: int) -> None:
        await self.send("Plain", {"UNIQ_KEY": f"{number:032X}"})

    async def commit(self, sent: Command) -> None:
        fields = {
            "producerGroup": "P",
            "tranStateTableOffset": sent.ext_fields["queueOffset"],
            "commitLogOffset": str(parse_offset_message_id(sent.ext_fields["msgId"]).physical_offset),
            "commitOrRollback": str(_COMMIT),
        }
        answer = await self.client.invoke(
            self.address, Command(RequestCode.END_TRANSACTION, ext_fields=fields), _SECONDS_MAX
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def stored(self, topic: str) -> int:
        return self.broker.state.max_offset(topic, 0)


def run(report: Report, *, count: int, waiting: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        asyncio.run(_waiting(report, Path(directory), count, waiting))
    _filters(report, count)


async def _waiting(report: Report, root: Path, count: int, waiting: int) -> None:
    group = f"pending messages, {len(_BODY)} B bodies, {_IN_FLIGHT} requests in flight, one process"
    bench, idle = _Bench(root / "waiting"), _Bench(root / "idle")
    await bench.broker.start()
    await idle.broker.start()

    def add(name: str, seconds: float, messages: int = count) -> None:
        report.add(Figure(group, name, seconds, messages, messages * len(_BODY)))

    def later(number: int) -> Awaitable[object]:
        return bench.send("Later", {"UNIQ_KEY": f"{number:032X}", "TIMER_DELIVER_MS": str(_now_ms() + 10 * _HOUR_MS)})

    async def transaction(number: int) -> None:
        properties = {"UNIQ_KEY": f"{number:032X}", "TRAN_MSG": "true", "PGROUP": "P"}
        await idle.commit(await idle.send("Decided", properties, _PREPARED))

    try:
        await _all(later, waiting)
        await _until(lambda: len(bench.broker._timed) >= waiting)
        # In turns, so that other load of the machine affects both alike.
        rounds: dict[_Bench, list[float]] = {idle: [], bench: []}
        for _ in range(_ROUNDS):
            for each, seconds in rounds.items():
                seconds.append(await _round(each.send_plain, count))
        add("baseline: plain sends, nothing pending", statistics.median(rounds[idle]))
        add(f"plain sends while {waiting:,} are scheduled", statistics.median(rounds[bench]))
        add("transactions: half message, commit", await _round(transaction, count // 4), count // 4)
        for name, topic, property_name in (
            ("scheduled messages delivered", "Moment", "TIMER_DELIVER_MS"),
            ("delayed messages delivered", "Level", "DELAY"),
        ):
            add(name, await _delivery(bench, topic, property_name, count))
    finally:
        for each in (bench, idle):
            await each.client.close()
            await each.broker.stop()


async def _delivery(bench: _Bench, topic: str, property_name: str, count: int) -> float:
    """Return the seconds from the due time of all messages until all are delivered."""
    timed, delayed = bench.broker._timed, bench.broker._delayed
    step, deliver_due = timed.step, delayed.deliver_due
    # Held until all are stored: only delivery is measured.
    timed.step = delayed.deliver_due = lambda _: None  # type: ignore[method-assign]

    def send(number: int) -> Awaitable[object]:
        value = "1" if property_name == "DELAY" else str(_now_ms() + 600_000)
        return bench.send(topic, {"UNIQ_KEY": f"{number:032X}", property_name: value})

    await _all(send, count)
    bench.ahead_ms = _HOUR_MS
    timed.step, delayed.deliver_due = step, deliver_due  # type: ignore[method-assign]
    started = time.perf_counter()
    bench.broker._scheduler.deliveries.woken.set()
    await _until(lambda: bench.stored(topic) >= count)
    seconds = time.perf_counter() - started
    bench.ahead_ms = 0
    return seconds


async def _all(work: Callable[[int], Awaitable[object]], count: int) -> None:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(_IN_FLIGHT)))


async def _round(work: Callable[[int], Awaitable[object]], count: int) -> float:
    gc.collect()
    started = time.perf_counter()
    await _all(work, count)
    return time.perf_counter() - started


async def _until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(_SECONDS_MAX):
        while not is_true():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.001)


def _filters(report: Report, count: int) -> None:
    group = "an SQL92 expression with five comparisons, for one message"
    properties = {"a": "7", "region": "us", "name": "order", "UNIQ_KEY": "0" * 32, "TAGS": "t"}
    matches = SqlFilter(_EXPRESSION).matches
    raw = encode_properties(properties)
    record = encode_message(make_message(names.BENCHMARK_TOPIC, _BODY, properties=raw, sys_flag=0))
    subscription = parse_subscription(names.BENCHMARK_TOPIC, _EXPRESSION, "SQL92")
    whole = subscription.record_filter
    assert whole is not None and whole(record) and matches(properties)
    for name, work in (
        ("over properties", lambda: [matches(properties) for _ in range(count)]),
        ("over a record of the log, properties decoded", lambda: [whole(record) for _ in range(count)]),
        ("parsed", lambda: [SqlFilter(_EXPRESSION) for _ in range(count // 100)]),
    ):
        each = count // 100 if name == "parsed" else count
        report.read(Reading(group, name, best_of(work, 3) / each * 1e6, "us"))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
