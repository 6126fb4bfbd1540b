"""Senders that wait for the disk, beside bare fdatasync of the same bytes: one by one, and as many at once as wait."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import uvloop

from benchmarks.bench_store import now_ms
from benchmarks.make_log import template
from benchmarks.measure import Figure, Report, median_of
from orbitlog.broker.flush_queue import FlushQueue
from orbitlog.formats.message import Message, encode_message
from orbitlog.formats.record_template import template_of
from orbitlog.remoting.connection import Connection
from orbitlog.store.message_store import MessageStore
from orbitlog.store.store_config import StoreConfig
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

_ROUNDS = 3
_REQUEST = Command(RequestCode.SEND_MESSAGE)
_ANSWER = b'{"code":0,"extFields":{"msgId":"7F00000100002A9F%016X","queueId":"0","queueOffset":"%d"}}'


def run(report: Report, *, count: int) -> None:
    message = template(1, b"x" * 1024, "TopicOrderEvents00", 0)
    for senders in (1, 8, 64):
        _rows(report, message, senders, max(count, senders * 10), slower_seconds=0.0)
    _rows(report, message, 64, max(count, 640), slower_seconds=0.002)


def _rows(report: Report, message: Message, senders: int, count: int, *, slower_seconds: float) -> None:
    group = f"sync flush, 1 KB bodies, {senders} waiting at a time"
    if slower_seconds:
        group += f", as on a disk that takes {slower_seconds * 1000:.0f} ms longer for a sync"
    record = encode_message(message)
    trips = count // senders
    total = trips * senders
    sync = partial(_slow_sync, slower_seconds=slower_seconds) if slower_seconds else os.fdatasync
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        raw = Path(directory, "raw")
        bare = median_of(partial(_bare_syncs, raw, record, min(total, 640), sync), _ROUNDS) * total / min(total, 640)
        report.add(Figure(group, "baseline: fdatasync of each", bare, total, total * len(record)))
        if senders > 1:
            together = median_of(partial(_bare_syncs, raw, record * senders, trips, sync), _ROUNDS)
            name = f"baseline: fdatasync of {senders} at a time"
            report.add(Figure(group, name, together, total, total * len(record)))
            woken = median_of(partial(_woken_syncs, raw, record * senders, trips, sync), _ROUNDS)
            report.add(Figure(group, "baseline: the same in a thread", woken, total, total * len(record)))
        with MessageStore.open(Path(directory, "store"), StoreConfig(sync_flush=True), now_ms) as store:
            flush = partial(_flush_slowly, store, slower_seconds) if slower_seconds else store.flush_log
            seconds = median_of(partial(_run_senders, store, flush, message, senders, total), _ROUNDS)
            report.add(Figure(group, "append and wait", seconds, total, total * len(record)))
            if senders > 1:
                seconds = median_of(partial(_run_together, store, flush, message, senders, total), _ROUNDS)
                name = "append a run and wait"
                report.add(Figure(group, name, seconds, total, total * len(record)))


def _slow_sync(descriptor: int, *, slower_seconds: float) -> None:
    os.fdatasync(descriptor)
    time.sleep(slower_seconds)


def _flush_slowly(store: MessageStore, slower_seconds: float) -> int:
    flushed_to = store.flush_log()
    time.sleep(slower_seconds)
    return flushed_to


def _bare_syncs(path: Path, records: bytes, count: int, sync: Callable[[int], None]) -> None:
    with path.open("w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, count * len(records))
        for number in range(count):
            os.pwrite(file.fileno(), records, number * len(records))
            sync(file.fileno())


def _woken_syncs(path: Path, records: bytes, count: int, sync: Callable[[int], None]) -> None:
    """Write here, and let another thread sync, as whoever has something else to do must: two threads take turns."""
    written, synced = threading.Lock(), threading.Lock()
    written.acquire()
    synced.acquire()
    with path.open("w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, count * len(records))

        def sync_each() -> None:
            for _ in range(count):
                written.acquire()
                sync(file.fileno())
                synced.release()

        thread = threading.Thread(target=sync_each)
        thread.start()
        for number in range(count):
            os.pwrite(file.fileno(), records, number * len(records))
            written.release()
            synced.acquire()
        thread.join()


def _run_senders(store: MessageStore, flush: Callable[[], int], message: Message, senders: int, count: int) -> None:
    uvloop.run(_waiting_senders(store, flush, message, senders, count))


async def _waiting_senders(
    store: MessageStore, flush: Callable[[], int], message: Message, senders: int, count: int
) -> None:
    """A broker's queue of those who wait; a sender sends again when it has its answer."""
    all_answered = asyncio.get_running_loop().create_future()
    flushes = FlushQueue(flush, lambda: None, lambda: 60_000)
    left, answered = count, 0

    class Sender:
        peer = "benchmark"

        def send(self) -> None:
            nonlocal left
            if left:
                left -= 1
                flushes.wait(store.append(message).end, cast(Connection, self), _REQUEST, b"")

        def respond_all(self, answers: Sequence[tuple[Command, bytes]]) -> None:
            nonlocal answered
            answered += len(answers)
            if answered == count:
                all_answered.set_result(None)
            self.send()

    for _ in range(senders):
        Sender().send()
    await all_answered
    await flushes.close()


def _run_together(store: MessageStore, flush: Callable[[], int], message: Message, senders: int, count: int) -> None:
    uvloop.run(_waiting_together(store, flush, message, senders, count))


async def _waiting_together(
    store: MessageStore, flush: Callable[[], int], message: Message, senders: int, count: int
) -> None:
    """The same where a broker reads the sends of all at once, since they are threads of one client."""
    all_answered = asyncio.get_running_loop().create_future()
    flushes = FlushQueue(flush, lambda: None, lambda: 60_000)
    shared = template_of(message)
    assert shared is not None
    queue = (message.topic, message.queue_id)
    rows = [(shared, queue, message.born_timestamp_ms, message.body, message.properties_raw)] * senders
    left, answered = count, 0

    class Shared:
        peer = "benchmark"

        def owe(self, _: int) -> None: ...

        def send(self, run: int) -> None:
            nonlocal left
            left -= run
            while run:
                places = store.append_run(rows[:run])
                if places:
                    frames = [_ANSWER % place for place in places]
                    flushes.wait_run(store.written_to, cast(Connection, self), frames)
                else:  # the log has to grow
                    flushes.wait_run(store.append(message).end, cast(Connection, self), [_ANSWER % (0, 0)])
                run -= max(len(places), 1)

        def respond_owed(self, frames: list[bytes]) -> None:
            nonlocal answered
            answered += len(frames)
            if answered == count:
                all_answered.set_result(None)
            elif left:
                self.send(min(len(frames), left))

    Shared().send(senders)
    await all_answered
    await flushes.close()
