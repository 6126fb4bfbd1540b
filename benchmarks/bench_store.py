"""The message store beside what the machine can do: raw copies into a map, and bare fdatasync."""

from __future__ import annotations

import asyncio
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.make_log import template
from benchmarks.measure import Figure, Report, best_of
from orbitlog.formats.message import Message, encode_message
from orbitlog.store.key_query import KeyQuery
from orbitlog.store.message_store import MessageStore
from orbitlog.store.queue_reader import GetStatus, ReadRequest
from orbitlog.store.store_config import StoreConfig


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def run(report: Report, *, count: int) -> None:
    for body_bytes in (128, 1024):
        messages = [
            template(number, b"x" * body_bytes, f"TopicOrderEvents{number % 16:02d}", number % 8)
            for number in range(1000)
        ]
        _append_and_read(report, messages, body_bytes, count)
    _sync_flush(report, 500 if count > 10_000 else 50)


def _append_and_read(report: Report, messages: list[Message], body_bytes: int, count: int) -> None:
    group = f"the store, {body_bytes} B bodies, one key, unique key and tags, async flush"
    records = [encode_message(message) for message in messages]
    rounds = count // len(messages)
    size_bytes = sum(map(len, records)) * rounds
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:

        def add(name: str, work: Callable[[], object], times: int = 1) -> None:
            report.add(Figure(group, name, best_of(work, times), rounds * len(messages), size_bytes))

        add("baseline: copies into a map", lambda: _raw_copies(Path(directory, "raw"), records, rounds), 3)
        store = MessageStore.open(Path(directory, "store"), StoreConfig(), now_ms)
        add("append", lambda: _append(store, messages, rounds))
        add("dispatch, step by step", lambda: _dispatch(store))
        add("read queues, 32 at a time", lambda: _read_all(store))
        add("flush log and derived files", store.flush_derived)
        _query(store, messages)
        add("close", store.close)
        reopened: list[MessageStore] = []
        add("open, closed before", lambda: reopened.append(_open(directory)))
        reopened.pop().close()
        Path(directory, "store", "orbitlog.state").unlink()
        add("open, nothing to trust", lambda: reopened.append(_open(directory)))
        reopened.pop().close()


def _open(directory: str) -> MessageStore:
    return MessageStore.open(Path(directory, "store"), StoreConfig(), now_ms)


def _raw_copies(path: Path, records: list[bytes], rounds: int) -> None:
    """Copy the same bytes into a map that was allocated before."""
    size_bytes = sum(map(len, records)) * rounds
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        with mmap.mmap(file.fileno(), size_bytes) as mapped:
            position = 0
            for _ in range(rounds):
                for record in records:
                    mapped[position : position + len(record)] = record
                    position += len(record)
    path.unlink()


def _append(store: MessageStore, messages: list[Message], rounds: int) -> None:
    for _ in range(rounds):
        for message in messages:
            store.append(message)


def _dispatch(store: MessageStore) -> None:
    while store.dispatched_to < store.written_to:
        store.dispatch_once()


def _read_all(store: MessageStore) -> None:
    for topic_number in range(16):
        for queue_id in range(8):
            queue_offset = 0
            while True:
                result = store.get(f"TopicOrderEvents{topic_number:02d}", queue_id, ReadRequest(queue_offset, 32))
                if result.status is not GetStatus.FOUND:
                    break
                queue_offset = result.next_offset


def _query(store: MessageStore, messages: list[Message]) -> None:
    took_us = []
    for message in messages[:300]:
        started = time.perf_counter()
        store.query(KeyQuery(message.topic, message.properties["KEYS"], limit=1))
        took_us.append((time.perf_counter() - started) * 1e6)
    cut = statistics.quantiles(took_us, n=100)
    print(f"  {'query by key, newest one':44} p50 {cut[49]:.0f} us, p99 {cut[98]:.0f} us")


def _sync_flush(report: Report, each: int) -> None:
    """Senders that append and wait for the disk, beside bare fdatasync of the same bytes one by one."""
    message = template(1, b"x" * 1024, "TopicOrderEvents00", 0)
    record = encode_message(message)
    for senders in (1, 8, 64):
        group = f"sync flush, 1 KB bodies, {senders} waiting at a time"
        count = each if senders == 1 else each * 4
        with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
            bare = best_of(partial(_bare_syncs, Path(directory, "raw"), record, count), 1)
            report.add(Figure(group, "baseline: fdatasync of each", bare, count, count * len(record)))
            with MessageStore.open(Path(directory, "store"), StoreConfig(sync_flush=True), now_ms) as store:
                seconds = best_of(partial(asyncio.run, _waiting_senders(store, message, senders, count)), 1)
            report.add(Figure(group, "append and wait", seconds, count, count * len(record)))


def _bare_syncs(path: Path, record: bytes, count: int) -> None:
    with path.open("w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, count * len(record))
        for number in range(count):
            os.pwrite(file.fileno(), record, number * len(record))
            os.fdatasync(file.fileno())


async def _waiting_senders(store: MessageStore, message: Message, senders: int, count: int) -> None:
    """One loop takes the messages, as a broker's does, and a thread takes them to the disk."""
    loop = asyncio.get_running_loop()
    waiting: list[tuple[int, asyncio.Future[None]]] = []
    wake = asyncio.Event()

    async def send() -> None:
        for _ in range(count // senders):
            on_disk = loop.create_future()
            waiting.append((store.append(message).end, on_disk))
            wake.set()
            await on_disk

    async def flush() -> None:
        while True:
            await wake.wait()
            wake.clear()
            flushed_to = await loop.run_in_executor(None, store.flush_log)
            done = [future for end, future in waiting if end <= flushed_to]
            waiting[:] = [(end, future) for end, future in waiting if end > flushed_to]
            for future in done:
                future.set_result(None)

    flusher = asyncio.create_task(flush())
    await asyncio.gather(*(send() for _ in range(senders)))
    flusher.cancel()
