"""Pulls of queue ranges: windows, retries at other brokers, lost offsets; the broker is a function of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from orbitlog.client.connection.routes import Route
from orbitlog.client.consumer.group_link import PullResult
from orbitlog.errors import BrokerRefused, ConnectFailed
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.pipeline.network import queue_pulls
from orbitlog.pipeline.network.network_options import ClusterOptions
from orbitlog.pipeline.network.queue_pulls import PulledRecords, PullPipeline, WindowCutter
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.wire.bodies.heartbeat_bodies import SubscriptionData
from orbitlog.wire.codes import ResponseCode

QUEUE = MessageQueue("T", "a", 0)
Serve = Callable[[int, int, int], PullResult]


class FakeSession:
    """A session whose group answers pulls with `serve(offset, count, broker_id)`."""

    def __init__(self, serve: Serve, brokers: dict[int, str] | None = None, timeout_s: float = 60.0) -> None:
        self.options = ClusterOptions("127.0.0.1:9", broker_timeout_s=timeout_s, pulls_in_flight=4)
        self.asked: list[tuple[int, int, int]] = []
        route = Route((), (QUEUE,), {"a": brokers or {0: "master"}})

        async def freshest(_: str) -> Route:
            return route

        async def pull(
            queue: MessageQueue,
            queue_offset: int,
            subscription: Any,
            commit: None,
            broker_id: int,
            count: int,
            **_: Any,
        ) -> PullResult:
            assert subscription.topic == queue.topic
            assert commit is None
            self.asked.append((queue_offset, count, broker_id))
            await asyncio.sleep(0)
            return serve(queue_offset, count, broker_id)

        self.routes = SimpleNamespace(known=lambda _: route, freshest=freshest)
        self.group = SimpleNamespace(pull=pull)
        self._loop = asyncio.new_event_loop()

    def run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self._loop.close()


def found(first: int, stop: int, *, body: bytes | None = None, **fields: Any) -> PullResult:
    values = {"min_queue_offset": 0, "max_queue_offset": 10_000, "offset_moved": False, **fields}
    text = b"".join(b"%d " % number for number in range(first, stop)) if body is None else body
    return PullResult(text, stop, **values)


def pulled(session: FakeSession, *ranges: tuple[MessageQueue, int, int], expression: str = "*") -> list[PulledRecords]:
    pipeline = PullPipeline(session, ranges, SubscriptionData("", expression=expression))  # type: ignore[arg-type]
    chunks = []
    try:
        while (chunk := pipeline.next()) is not None:
            chunks.append(chunk)
        return chunks
    finally:
        pipeline.close()
        session.close()


def numbers(chunks: list[PulledRecords]) -> list[int]:
    return [int(text) for chunk in chunks for body in chunk.bodies for text in body.split()]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_pulls, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(queue_pulls, "_PAUSE_S_MAX", 0.0)


def test_ranges_arrive_in_order_and_each_offset_once() -> None:
    session = FakeSession(lambda first, count, _: found(first, first + min(count, 7)))
    other = MessageQueue("T", "a", 1)
    chunks = pulled(session, (QUEUE, 5, 1000), (other, 0, 3))
    assert [chunk.number for chunk in chunks] == [0, 1]
    assert numbers(chunks) == [*range(5, 1000), *range(3)]
    assert len({offset for offset, _, _ in session.asked[:-1]}) == len(session.asked) - 1


def test_windows_follow_the_size_of_records() -> None:
    cutter = WindowCutter([(QUEUE, 0, 100_000)], is_filtered=False)
    windows = cutter.windows()
    assert [(window.start, window.stop) for window in (next(windows), next(windows))] == [(0, 64), (64, 128)]
    cutter.learn(64, 64 * 200)
    assert next(windows).stop == 128 + 1024
    cutter.learn(64, 64 << 20)
    assert next(windows).stop == 128 + 1024 + 8


def test_window_of_large_records_is_cut_and_continued() -> None:
    body = b"1 " * (3 << 20)
    session = FakeSession(lambda first, _, __: found(first, first + 1, body=body))
    chunks = pulled(session, (QUEUE, 0, 6))
    assert sum(len(chunk.bodies) for chunk in chunks) == 6
    assert max(len(chunk.bodies) for chunk in chunks) <= 2
    assert chunks[-1].reached == 6


def test_filtered_pull_may_skip_everything() -> None:
    session = FakeSession(lambda first, _, __: found(first, first + 4000, body=b""))
    assert numbers(pulled(session, (QUEUE, 0, 40_000), expression="A")) == []


def test_replica_serves_while_the_master_is_down() -> None:
    def serve(first: int, count: int, broker_id: int) -> PullResult:
        if broker_id == 0:
            raise ConnectFailed("refused")
        return found(first, first + count, suggested_broker_id=1)

    session = FakeSession(serve, {0: "master", 1: "slave"})
    assert numbers(pulled(session, (QUEUE, 0, 300))) == list(range(300))


def test_suggested_replica_is_used_and_left_if_it_lags() -> None:
    def serve(first: int, count: int, broker_id: int) -> PullResult:
        if broker_id == 1 and first >= 100:
            return found(first, 100, body=b"", offset_moved=True, max_queue_offset=100)
        return found(first, first + count, suggested_broker_id=1)

    session = FakeSession(serve, {0: "master", 1: "slave"})
    chunks = pulled(session, (QUEUE, 0, 300))
    assert numbers(chunks) == list(range(300))
    assert all(not chunk.lost for chunk in chunks)
    assert {broker_id for _, _, broker_id in session.asked} == {0, 1}


def test_offsets_cut_by_retention_are_reported() -> None:
    def serve(first: int, count: int, _: int) -> PullResult:
        if first < 40:
            return found(first, 40, body=b"", min_queue_offset=40, offset_moved=True)
        return found(first, first + count, min_queue_offset=40)

    chunks = pulled(FakeSession(serve), (QUEUE, 10, 60))
    assert [(lost.start, lost.stop) for chunk in chunks for lost in chunk.lost] == [(10, 40)]
    assert numbers(chunks) == list(range(40, 60))


def test_truncated_queue_is_reported_by_the_master() -> None:
    chunks = pulled(
        FakeSession(lambda *_: found(0, 20, body=b"", offset_moved=True, max_queue_offset=20)), (QUEUE, 30, 60)
    )
    assert [(lost.start, lost.stop, lost.why) for chunk in chunks for lost in chunk.lost] == [
        (30, 60, "the queue now ends at 20")
    ]


def test_silent_broker_is_an_error_that_names_queue_and_option() -> None:
    def serve(*_: int) -> PullResult:
        raise ConnectFailed("127.0.0.1:9 refused the connection")

    session = FakeSession(serve, timeout_s=0.0)
    with pytest.raises(BrokerUnavailable, match=r"queue 0 of T at a from offset 3: .*refused.*brokerTimeoutMs"):
        pulled(session, (QUEUE, 3, 9))


def test_refusal_is_not_retried_unless_the_broker_is_busy() -> None:
    answers = iter([BrokerRefused(ResponseCode.SYSTEM_BUSY, "busy"), BrokerRefused(ResponseCode.NO_PERMISSION, "no")])

    def serve(*_: int) -> PullResult:
        raise next(answers)

    with pytest.raises(BrokerRefused, match="no"):
        pulled(FakeSession(serve), (QUEUE, 0, 1))


def test_pulls_of_a_broker_with_a_limit_ask_for_the_same_number() -> None:
    session = FakeSession(lambda first, count, _: found(first, first + min(count, 32), body=b"%d " * 32))
    pulled(session, (QUEUE, 0, 5000))
    counts = [count for _, count, _ in session.asked]
    assert counts.count(1024) > 0.9 * len(counts)
    assert sum(min(count, 32) for count in counts) == 5000
