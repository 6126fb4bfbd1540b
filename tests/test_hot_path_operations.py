"""Cost of one message on the broker's hot paths: function calls and system calls. Times are too noisy for limits.

Each limit is the measured count of calls a message, and fails at 10 % more: counts differ a little between versions of
Python. A change over a limit is a question: is the additional work worth doing for every message? If so, set the limit
to the count that the failure shows, and give the reason in the commit. If a count falls by a tenth, lower the limit, or
the gain can be lost unnoticed. `make bench ARGS=hot` measures the same paths in microseconds.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop

from orbitlog.formats.records.message import make_message
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.wire.ha_frames import encode_report
from tests.support.hot_path import (
    QUEUES,
    TOPIC,
    HotPath,
    batches,
    commits,
    halves,
    hot_path_at,
    pulls,
    sends,
    signed_sends,
)
from tests.support.secured_broker import ROOT, SECURE

MESSAGES = 64
MEMBERS = 32
SLACK = 1.1


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the garbage collector, whose finalizers would be counted."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def calls_of(work: Callable[[], object]) -> tuple[int, Counter[str]]:
    """Count calls of Python and C functions, and system calls by name."""
    count, of_system = 0, Counter[str]()

    def profile(_: FrameType, event: str, called: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1
            if event == "c_call" and getattr(called, "__module__", "") == "posix":
                of_system[called.__name__] += 1

    before = sys.getprofile()
    with without_collector():
        sys.setprofile(profile)
        try:
            work()
        finally:
            sys.setprofile(before)
    return count, of_system


def scheduled_by(work: Callable[[], object]) -> int:
    """Count timers, tasks and futures that some work makes."""
    count = 0

    def profile(_: FrameType, event: str, called: Any) -> None:
        nonlocal count
        name = getattr(called, "__name__", "") if event == "c_call" else ""
        count += name in ("call_at", "call_later", "call_soon", "create_future", "create_task", "Future", "Task")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def check_calls(called: int, messages: int, limit: float) -> None:
    assert called / messages <= limit * SLACK, f"{called / messages:.1f} calls a message, limit {limit} and 10 %"


def at_hot_path(
    root: Path, work: Callable[[HotPath], Awaitable[None]], *, kernels: bool = False, **settings: str
) -> None:
    async def run() -> None:
        async with hot_path_at(root, kernels=kernels, **settings) as path:
            for data in sends(10 * MESSAGES):  # enough for every template to be learned, and for pulls
                path.feed(data)
            path.dispatch()
            await work(path)

    uvloop.run(run())


def check(path: HotPath, reads: list[bytes], messages: int, *, calls: float) -> None:
    """Feed reads with `messages` in all; one write each, no system call, and at most `calls` a message."""

    def feed() -> None:
        for data in reads:
            path.feed(data)

    feed()
    written = path.transport.calls
    called, of_system = calls_of(feed)
    assert path.transport.calls - written == len(reads), "one write for the responses to a read"
    assert b'"code":0' in path.transport.last
    assert not of_system, "no system call for a response"
    check_calls(called, messages, calls)


def test_one_send_a_read(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        check(path, sends(MESSAGES), MESSAGES, calls=67.1)

    at_hot_path(tmp_path, work)


def test_many_sends_a_read(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        check(path, [b"".join(sends(MESSAGES))], MESSAGES, calls=23.8)

    at_hot_path(tmp_path, work)


@pytest.mark.parametrize(("together", "calls"), [(1, 94.0), (MESSAGES, 38.9)], ids=["one a read", "many a read"])
def test_signed_sends(tmp_path: Path, together: int, calls: float) -> None:
    frames = signed_sends(MESSAGES, ROOT)

    async def run() -> None:
        async with hot_path_at(tmp_path, kernels=False, **SECURE) as path:
            for data in frames * 10:  # enough for the template and the signed pattern to be learned
                path.feed(data)
            path.dispatch()
            check(
                path,
                [b"".join(frames[at : at + together]) for at in range(0, MESSAGES, together)],
                MESSAGES,
                calls=calls,
            )

    uvloop.run(run())


def test_many_sends_a_read_that_wait_for_the_disk(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        data, store, flushes = b"".join(sends(MESSAGES)), path.broker.state.store, path.broker._flushes
        assert flushes is not None
        # Wait until the topic is saved and the last flush is over: another thread must not flush the sends below.
        while path.connection.unanswered or flushes._is_flushing or flushes._start_planned or flushes._delayed_start:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

        def feed_and_land() -> None:
            path.feed(data)
            flushes._on_flushed(store.flush_log())

        feed_and_land()
        written = path.transport.calls
        called, of_system = calls_of(feed_and_land)
        assert path.transport.calls - written == 1, "one write for all sends that one flush covers"
        assert of_system == {"fdatasync": 1}
        check_calls(called, MESSAGES, 24.5)

    at_hot_path(tmp_path, work, flushDiskType="SYNC_FLUSH")


def test_many_sends_a_read_that_wait_for_a_slave(tmp_path: Path) -> None:
    """No task, future or timer for a message: a slave's report moves one mark, which answers all of them."""

    async def work(path: HotPath) -> None:
        data, master, store = b"".join(sends(MESSAGES)), path.broker._master, path.broker.state.store
        assert master is not None
        _, writer = await asyncio.open_connection("127.0.0.1", master.port)
        writer.write(encode_report(store.written_to))
        while not master.slaves:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

        async def acknowledge() -> None:
            while path.connection.unanswered:
                await asyncio.sleep(0.002)
                writer.write(encode_report(store.written_to))

        path.feed(data)
        await acknowledge()
        tasks, written = len(asyncio.all_tasks()), path.transport.calls
        scheduled = scheduled_by(lambda: path.feed(data))
        assert scheduled <= 2, f"{scheduled} timers, tasks and futures for {MESSAGES} messages"
        assert path.connection.unanswered == MESSAGES
        assert len(asyncio.all_tasks()) == tasks
        await acknowledge()
        assert path.transport.calls - written == 1, "one write for all sends that one report covers"
        called, of_system = calls_of(lambda: path.feed(data))
        assert not of_system
        check_calls(called, MESSAGES, 24.5)
        await acknowledge()
        writer.close()

    at_hot_path(tmp_path, work, brokerRole="SYNC_MASTER")


def test_one_flush(tmp_path: Path) -> None:
    """Calls of the flush thread besides fdatasync, made while it holds the interpreter lock."""
    with MessageStore.open(tmp_path, StoreConfig(sync_flush=True), lambda: 1) as store:
        message = make_message(topic=TOPIC, body=b"x")

        def counted() -> tuple[int, Counter[str]]:
            store.append(message)
            return calls_of(store.flush_log)

        counted()
        called, of_system = counted()
        assert of_system == {"fdatasync": 1}
        check_calls(called, 1, 8)


def test_a_long_run_is_one_call(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        data = b"".join(sends(MESSAGES, body_bytes=1024))
        path.feed(data)
        called, of_system = calls_of(lambda: path.feed(data))
        assert of_system == {"pwrite": 1}, "instead of a page fault for every page"
        check_calls(called, MESSAGES, 23.8)

    at_hot_path(tmp_path, work)


@pytest.mark.parametrize(("kernels", "calls"), [(False, 5.1), (True, 3.5)])
def test_a_batch(tmp_path: Path, kernels: bool, calls: float) -> None:
    async def work(path: HotPath) -> None:
        check(path, batches(2), 2 * MEMBERS, calls=calls)

    at_hot_path(tmp_path, work, kernels=kernels)


def test_a_transaction(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        check(path, [b"".join(halves(MESSAGES))], MESSAGES, calls=61.9)
        store = path.broker.state.store

        def ends() -> bytes:
            path.feed(b"".join(halves(MESSAGES)))
            return b"".join(commits(path.transport.last))

        first = ends()
        dispatched_to, written_to = store.dispatched_to, store.written_to
        called, of_system = calls_of(lambda: path.feed_commits(first))
        assert not of_system and store.written_to > written_to
        check_calls(called, MESSAGES, 39.3)
        assert store.dispatched_to == dispatched_to, "commits are dispatched together, not one by one"

    at_hot_path(tmp_path, work)


def test_a_pull(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        for data in pulls([0] * 40):  # until their header pattern is learned
            path.feed(data)
        check(path, pulls([0, MEMBERS]), 2 * MEMBERS, calls=8.6)

    at_hot_path(tmp_path, work)


def test_long_polling(tmp_path: Path) -> None:
    """Fifty groups poll for one message: the cost of each pull when it is held, and when it is answered."""
    groups = 50

    async def work(path: HotPath) -> None:
        consumers = [HotPath(path.broker) for _ in range(groups)]
        one_send = sends(1, first=QUEUES)
        queue_offset = path.broker.state.max_offset(TOPIC, 0)

        def wait_and_wake(count: Callable[[Callable[[], object]], Any] = calls_of) -> tuple[Any, Any]:
            nonlocal queue_offset
            asked = [pulls([queue_offset], consumerGroup=f"group{number}")[0] for number in range(groups)]
            queue_offset += 1
            held = count(lambda: [each.feed(data) for each, data in zip(consumers, asked, strict=True)])
            path.feed(one_send[0])
            return held, count(path.dispatch)

        for _ in range(40):  # until their header pattern is learned
            wait_and_wake(lambda work: work())
        written = [each.transport.calls for each in consumers]
        (held, _), (woken, of_system) = wait_and_wake()
        assert [each.transport.calls - before for each, before in zip(consumers, written, strict=True)] == [1] * groups
        assert all(b'"code":0' in each.transport.last for each in consumers)
        assert not of_system
        check_calls(held, groups, 78)
        check_calls(woken, groups, 49)
        for each in consumers:
            each.close()

    at_hot_path(tmp_path, work)


@pytest.mark.parametrize(("kernels", "calls"), [(False, 54), (True, 5)])
def test_dispatch(tmp_path: Path, kernels: bool, calls: float) -> None:
    async def work(path: HotPath) -> None:
        def step() -> tuple[int, Counter[str]]:
            path.feed(b"".join(sends(MESSAGES)))
            return calls_of(path.dispatch)

        step()
        called, of_system = min((step() for _ in range(3)), key=lambda counted: counted[0])
        check_calls(called, MESSAGES, calls)
        assert sum(of_system.values()) <= QUEUES, "space for units is allocated for hundreds of messages at once"

    at_hot_path(tmp_path, work, kernels=kernels)


# Metrics

METRICS = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}


def calls_with(root: Path, reads: Callable[[], list[bytes]], **settings: str) -> int:
    """Return the fewest calls for all reads, after they were fed often enough for every template to be learned."""
    counted = 0

    async def work(path: HotPath) -> None:
        nonlocal counted

        def feed() -> None:
            for data in reads():
                path.feed(data)

        for _ in range(40):
            feed()
        # A loop that runs once a second may add its calls to one of the rounds.
        counted = min(calls_of(feed)[0] for _ in range(3))

    at_hot_path(root, work, **settings)
    return counted


@pytest.mark.parametrize(
    ("reads", "messages", "calls_max"),
    [
        pytest.param(lambda: [b"".join(sends(MESSAGES))], MESSAGES, 0.5, id="a run of sends"),
        pytest.param(lambda: sends(MESSAGES), MESSAGES, 4.2, id="single sends"),
        pytest.param(lambda: pulls([0, MEMBERS]), 2 * MEMBERS, 0.7, id="pulls"),
    ],
)
def test_metrics_add_few_calls(
    tmp_path: Path, reads: Callable[[], list[bytes]], messages: int, calls_max: float
) -> None:
    without = calls_with(tmp_path / "without", reads)
    metered = calls_with(tmp_path / "with", reads, **METRICS)
    added = (metered - without) / messages
    assert added <= calls_max, f"{added:.2f} calls a message more than {without / messages:.1f} without metrics"
