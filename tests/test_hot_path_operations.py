"""What one message costs, counted: bytecodes, calls, and calls of the system. Times are too noisy to hold anybody to.

A limit that a change goes over is a question: is what it adds worth doing for each message? If it is, set the limit to
the count that the failure shows and say why in the commit; if the count went down by a tenth, lower the limit as well,
or the gain can be lost unseen. `make bench ARGS=hot` tells what the counts mean in microseconds.
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
from tests.support.hot_path import QUEUES, TOPIC, HotPath, batches, commits, halves, hot_path_at, pulls, sends

MESSAGES = 64
MEMBERS = 32
# Other versions of Python have other bytecodes; the calls are the same.
COUNTS_BYTECODES = sys.version_info[:2] == (3, 11)


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep what other tests left behind from being ended, and counted, meanwhile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def bytecodes_of(work: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    with without_collector():
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(before)
    return count


def calls_of(work: Callable[[], object]) -> tuple[int, Counter[str]]:
    """Count functions called, of Python and C, and those of the operating system by their names."""
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


def at_hot_path(
    root: Path, work: Callable[[HotPath], Awaitable[None]], *, kernels: bool = False, **settings: str
) -> None:
    async def run() -> None:
        async with hot_path_at(root, kernels=kernels, **settings) as path:
            for data in sends(10 * MESSAGES):  # enough for every lane to be found, and for pulls
                path.feed(data)
            path.dispatch()
            await work(path)

    uvloop.run(run())


def check(path: HotPath, reads: list[bytes], messages: int, *, bytecodes: float, calls: float) -> None:
    """Feed reads of so many messages; what is counted may not be more than the limits a message."""

    def feed() -> None:
        for data in reads:
            path.feed(data)

    feed()
    written = path.transport.calls
    called, of_system = calls_of(feed)
    assert path.transport.calls - written == len(reads), "one write for the answers to a read"
    assert b'"code":0' in path.transport.last
    assert not of_system, "nothing is asked of the system to answer"
    assert called / messages <= calls
    if COUNTS_BYTECODES:
        assert bytecodes_of(feed) / messages <= bytecodes


def test_one_send_a_read(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        check(path, sends(MESSAGES), MESSAGES, bytecodes=1106, calls=75.1)

    at_hot_path(tmp_path, work)


def test_many_sends_a_read(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        check(path, [b"".join(sends(MESSAGES))], MESSAGES, bytecodes=402, calls=26)

    at_hot_path(tmp_path, work)


def test_many_sends_a_read_that_wait_for_the_disk(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        data, store, flushes = b"".join(sends(MESSAGES)), path.broker.state.store, path.broker._flushes
        assert flushes is not None
        # Until the topic is saved and the last trip is over: another thread must not take along what is sent below.
        while path.connection.unanswered or flushes._is_under_way or flushes._start_planned or flushes._held:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

        def feed_and_land() -> None:
            path.feed(data)
            flushes._land(store.flush_log())

        feed_and_land()
        written = path.transport.calls
        called, of_system = calls_of(feed_and_land)
        assert path.transport.calls - written == 1, "one write for all that one trip took along"
        assert of_system == {"fdatasync": 1}
        assert called / MESSAGES <= 27.2
        if COUNTS_BYTECODES:
            assert bytecodes_of(feed_and_land) / MESSAGES <= 419

    at_hot_path(tmp_path, work, flushDiskType="SYNC_FLUSH")


def test_a_trip_to_the_disk(tmp_path: Path) -> None:
    """What the thread of the disk does beside the sync, while it has the interpreter's lock."""
    with MessageStore.open(tmp_path, StoreConfig(sync_flush=True), lambda: 1) as store:
        message = make_message(topic=TOPIC, body=b"x")

        def counted(count: Callable[[Callable[[], object]], Any]) -> Any:
            store.append(message)
            return count(store.flush_log)

        counted(calls_of)
        called, of_system = counted(calls_of)
        assert of_system == {"fdatasync": 1}
        assert called <= 8
        if COUNTS_BYTECODES:
            assert counted(bytecodes_of) <= 93


def test_a_long_run_is_one_call(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        data = b"".join(sends(MESSAGES, body_bytes=1024))
        path.feed(data)
        called, of_system = calls_of(lambda: path.feed(data))
        assert of_system == {"pwrite": 1}, "instead of a fault for every page"
        assert called / MESSAGES <= 26

    at_hot_path(tmp_path, work)


@pytest.mark.parametrize(("kernels", "bytecodes", "calls"), [(False, 88, 5.1), (True, 46, 3.5)])
def test_a_batch(tmp_path: Path, kernels: bool, bytecodes: float, calls: float) -> None:
    async def work(path: HotPath) -> None:
        check(path, batches(2), 2 * MEMBERS, bytecodes=bytecodes, calls=calls)

    at_hot_path(tmp_path, work, kernels=kernels)


def test_a_transaction(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        check(path, [b"".join(halves(MESSAGES))], MESSAGES, bytecodes=931, calls=66.9)
        store = path.broker.state.store

        def ends() -> bytes:
            path.feed(b"".join(halves(MESSAGES)))
            return b"".join(commits(path.transport.last))

        first, second = ends(), ends()
        dispatched_to, written_to = store.dispatched_to, store.written_to
        called, of_system = calls_of(lambda: path.feed_commits(first))
        assert not of_system and store.written_to > written_to
        assert called / MESSAGES <= 42.1
        if COUNTS_BYTECODES:
            assert bytecodes_of(lambda: path.feed_commits(second)) / MESSAGES <= 609
        assert store.dispatched_to == dispatched_to, "commits are dispatched together, and not each when it comes"

    at_hot_path(tmp_path, work)


def test_a_pull(tmp_path: Path) -> None:
    async def work(path: HotPath) -> None:
        for data in pulls([0] * 40):  # until they are known by their text
            path.feed(data)
        check(path, pulls([0, MEMBERS]), 2 * MEMBERS, bytecodes=166, calls=8.6)

    at_hot_path(tmp_path, work)


def test_pulls_that_wait(tmp_path: Path) -> None:
    """Fifty groups wait for one message: what each costs when it comes to wait, and when it is woken."""
    groups = 50

    async def work(path: HotPath) -> None:
        consumers = [HotPath(path.broker) for _ in range(groups)]
        one_send = sends(1, first=QUEUES)
        queue_offset = path.broker.state.max_offset(TOPIC, 0)

        def wait_and_wake(count: Callable[[Callable[[], object]], Any]) -> tuple[Any, Any]:
            nonlocal queue_offset
            asked = [pulls([queue_offset], consumerGroup=f"group{number}")[0] for number in range(groups)]
            queue_offset += 1
            held = count(lambda: [each.feed(data) for each, data in zip(consumers, asked, strict=True)])
            path.feed(one_send[0])
            return held, count(path.dispatch)

        for _ in range(40):  # until they are known by their text
            wait_and_wake(lambda work: work())
        written = [each.transport.calls for each in consumers]
        (held, _), (woken, of_system) = wait_and_wake(calls_of)
        assert [each.transport.calls - before for each, before in zip(consumers, written, strict=True)] == [1] * groups
        assert all(b'"code":0' in each.transport.last for each in consumers)
        assert not of_system
        assert held / groups <= 78
        assert woken / groups <= 49
        if COUNTS_BYTECODES:
            held, woken = wait_and_wake(bytecodes_of)
            assert held / groups <= 1195
            assert woken / groups <= 660
        for each in consumers:
            each.close()

    at_hot_path(tmp_path, work)


@pytest.mark.parametrize(("kernels", "bytecodes", "calls"), [(False, 1010, 54), (True, 68, 5)])
def test_dispatch(tmp_path: Path, kernels: bool, bytecodes: float, calls: float) -> None:
    async def work(path: HotPath) -> None:
        def step() -> tuple[int, Counter[str]]:
            path.feed(b"".join(sends(MESSAGES)))
            return calls_of(path.dispatch)

        step()
        called, of_system = min((step() for _ in range(3)), key=lambda counted: counted[0])
        assert called / MESSAGES <= calls
        assert sum(of_system.values()) <= QUEUES, "room for units is made for hundreds of messages at once"
        path.feed(b"".join(sends(MESSAGES)))
        if COUNTS_BYTECODES:
            assert bytecodes_of(path.dispatch) / MESSAGES <= bytecodes

    at_hot_path(tmp_path, work, kernels=kernels)
