"""CPU time of the event loop thread for sends, batches, transactions and pulls, without sockets."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvloop

from benchmarks.measure import Reading, Report
from tests.support.hot_path import QUEUES, HotPath, batches, commits, halves, hot_path_at, pulls, sends, sends_to_many

GROUP = "the broker's own CPU time, 128 B bodies"
PIPELINED = 64
MEMBERS = 32
ROUNDS = 3
TOGETHER = 8
MANY_TOPICS = 1000
MANY_QUEUES = 4


def run(report: Report, *, count: int) -> None:
    """Measure with about `count` messages a round."""
    with tempfile.TemporaryDirectory(prefix="orbitlog-hot-path-") as directory:
        uvloop.run(_run(report, Path(directory, "async"), count))
        uvloop.run(_run_synced(report, Path(directory, "sync"), count))


async def _run(report: Report, root: Path, count: int) -> None:
    async with hot_path_at(root) as path:
        with _rare_collections():
            single = sends(count, first=1)
            together = [b"".join(single[at : at + PIPELINED]) for at in range(0, count, PIPELINED)]
            _measure(report, path, "one send a read", single, len(single), 1)
            _measure(report, path, f"{PIPELINED} sends a read", together, len(single), PIPELINED)
            batched = batches(count // MEMBERS)
            _measure(report, path, f"batch of {MEMBERS} a read", batched, len(batched) * MEMBERS, MEMBERS)
            large = batches(count // MEMBERS, body_bytes=1024)
            _measure(report, path, f"batch of {MEMBERS} a read, 1 KB", large, len(large) * MEMBERS, MEMBERS)
            _measure_transactions(report, path, count // 4)
            _measure_many_queues(report, path, min(MANY_TOPICS, count // 8))
            pulled = pulls(range(0, count // QUEUES, MEMBERS))
            _measure(report, path, f"pull of {MEMBERS} a read", pulled, len(pulled) * MEMBERS, 0)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Keep the collector from going through what has nothing to do with what is measured."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(700)


async def _run_synced(report: Report, root: Path, count: int) -> None:
    """Measure sends that wait for the disk: what it takes to store them, and to answer when they are there."""
    frames = sends(count, first=1)
    reads = [b"".join(frames[at : at + PIPELINED]) for at in range(0, count, PIPELINED)]
    async with hot_path_at(root, flushDiskType="SYNC_FLUSH") as path:
        while path.connection.unanswered:  # noqa: ASYNC110 - until the topic is saved, which has no event
            await asyncio.sleep(0.001)
        with _rare_collections():
            spent = _quiet(_synced_steps(path, reads * ROUNDS)) / PIPELINED * 1e6
        report.read(Reading(GROUP, f"{PIPELINED} sends a read, sync flush: without the disk", spent, "µs"))


def _synced_steps(path: HotPath, reads: Sequence[bytes]) -> list[float]:
    store, flushes = path.broker.state.store, path.broker._flushes
    assert flushes is not None
    seconds = []
    for data in reads:
        started = time.thread_time()
        path.feed(data)
        stored = time.thread_time()
        flushed_to = store.flush_log()
        landing = time.thread_time()
        flushes._on_flushed(flushed_to)
        seconds.append(stored - started + time.thread_time() - landing)
        path.dispatch()
    return seconds


def _measure(report: Report, path: HotPath, name: str, reads: Sequence[bytes], messages: int, a_read: int) -> None:
    """Measure the cost of a step in its fastest rounds: the others include other load of the machine."""
    answering, dispatching = _steps(path, reads * ROUNDS, a_read)
    per_message = len(answering) / ROUNDS / messages * 1e6
    report.read(Reading(GROUP, f"{name}: until the response", _quiet(answering) * per_message, "µs"))
    if a_read:
        report.read(Reading(GROUP, f"{name}: dispatch", _quiet(dispatching) * per_message, "µs"))


def _measure_transactions(report: Report, path: HotPath, count: int) -> None:
    """Half messages, some a read, and then their commits."""
    clock = time.thread_time
    spent: tuple[list[float], list[float], list[float]] = ([], [], [])
    for first in range(1, count, PIPELINED):
        answered = []
        started = clock()
        for frames in _in_groups(halves(PIPELINED, first=first)):
            path.feed(frames)
            answered.append(path.transport.last)
        spent[0].append(clock() - started)
        ends = _in_groups(commits(b"".join(answered)))
        started = clock()
        for frames in ends:
            path.feed_commits(frames)
        spent[1].append(clock() - started)
        started = clock()
        path.dispatch()
        spent[2].append(clock() - started)
    for name, seconds in zip(("half message", "commit", "dispatch of the records"), spent, strict=True):
        report.read(Reading(GROUP, f"transactions, {TOGETHER} a read: {name}", _quiet(seconds) / PIPELINED * 1e6, "µs"))


def _measure_many_queues(report: Report, path: HotPath, topic_count: int) -> None:
    """Sends over thousands of queues in turn, each of which has had messages before."""
    names = [f"Many{number}" for number in range(topic_count)]
    count = 2 * topic_count * MANY_QUEUES
    for name in names:
        path.broker.state.topics.find_or_create(name, MANY_QUEUES)
    reads = _in_groups(sends_to_many(count, names, MANY_QUEUES))
    _steps(path, reads, TOGETHER)
    _measure(report, path, f"{TOGETHER} sends a read, {count // 2:,} queues", reads, count, TOGETHER)


def _in_groups(frames: Sequence[bytes]) -> list[bytes]:
    return [b"".join(frames[at : at + TOGETHER]) for at in range(0, len(frames), TOGETHER)]


def _quiet(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 5]


def _steps(path: HotPath, reads: Sequence[bytes], a_read: int) -> tuple[list[float], list[float]]:
    """Return processor seconds of each step for answering and for dispatching: 64 messages or more."""
    answering, dispatching = [], []
    clock: Callable[[], float] = time.thread_time
    every = max(PIPELINED // a_read, 1) if a_read else 1
    for at in range(0, len(reads), every):
        started = clock()
        for data in reads[at : at + every]:
            path.feed(data)
        answered = clock()
        path.dispatch()
        answering.append(answered - started)
        dispatching.append(clock() - answered)
    return answering, dispatching
