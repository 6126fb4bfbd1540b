"""Senders that wait for a sync, beside bare fdatasync of the same bytes: one by one, and for all waiting senders.

All lines write the same bytes, alternate, and are the median of five rounds:

- *fdatasync of each*, *of 64 at a time*: `pwrite` of one record, or of one for each waiting sender, and `fdatasync`, in
  one thread, without responses and without encoding: the minimum.
- *the same in a thread*: another thread syncs, and both alternate.
- *over bytes written before*, *in two halves at once*: what the disk could do otherwise, also bare. A file that already
  contains zeros has no blocks to mark as written; and two threads with separate descriptors sync half of the bytes each
  at the same time. The store does neither.
- *append and wait*: every sender stores one message, and the next one after its response, as if each had a connection.
- *append a run and wait*: the sends of all arrive in one read and are stored together. Both are in step with the disk
  like the bare sync: no sender has a message before the flush is over.
- *append a run, sync here*: the store alone. Records are encoded, appended and flushed in one thread.
- *wait alone*, *wait for a run alone*: senders, queue, flush thread and the way back, without a store and with a flush
  that takes no time. They include the benchmark's own work for responses and sends.

The time is from the first send to the last response; the event loop exists before, as in a broker. The number of
messages a sync shows whether groups were as large as those of the bare sync. *CPU time a flush* is that of the steps
alone, in one thread, alternating with the bare ones, and does not include waiting.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from io import FileIO
from pathlib import Path
from typing import cast

import uvloop

from benchmarks.bench_store import now_ms
from benchmarks.make_log import template
from benchmarks.measure import Figure, Reading, Report, seconds_of
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.formats.records.message import Message, encode_message, measure_record
from orbitlog.formats.records.record_template import Row, encode_run
from orbitlog.remoting.connection import Connection
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

_ROUNDS = 5
_TRIPS_MIN = 50
_SINGLE_MAX = 320
_REQUEST = Command(RequestCode.SEND_MESSAGE)
_ANSWER = b'{"code":0,"extFields":{"msgId":"7F00000100002A9F%016X","queueId":"0","queueOffset":"%d"}}'

Work = Callable[[], float]


def run(report: Report, *, count: int) -> None:
    message = template(1, b"x" * 1024, "TopicOrderEvents00", 0)
    for senders in (1, 8, 64):
        _rows(report, message, senders, max(count, senders * _TRIPS_MIN), slower_seconds=0.0)
    _rows(report, message, 64, max(count, 64 * _TRIPS_MIN), slower_seconds=0.002)


def _rows(report: Report, message: Message, senders: int, count: int, *, slower_seconds: float) -> None:
    group = f"sync flush, 1 KB bodies, {senders} waiting at a time"
    if slower_seconds:
        group += f", as on a disk that takes {slower_seconds * 1000:.0f} ms longer for a sync"
    record = encode_message(message)
    trips = count // senders
    sync = partial(_slow_sync, slower_seconds=slower_seconds) if slower_seconds else os.fdatasync
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        with MessageStore.open(Path(directory, "store"), StoreConfig(sync_flush=True), now_ms) as store:
            flush = CountedFlush(partial(_flush_slowly, store, slower_seconds) if slower_seconds else store.flush_log)
            works = _bare_works(Path(directory), record, senders, trips, sync)
            works += _store_works(store, flush, message, senders, trips)
            _measure(report, group, works, flush, len(record))
            if senders > 1 and not slower_seconds:
                _processor_time(report, group, store, message, Path(directory), senders)


def _bare_works(
    directory: Path, record: bytes, senders: int, trips: int, sync: Callable[[int], None]
) -> list[tuple[str, int, Work]]:
    few, total, records = min(senders * trips, _SINGLE_MAX), senders * trips, record * senders
    works: list[tuple[str, int, Work]] = [
        ("baseline: fdatasync of each", few, partial(_bare_syncs, directory, record, few, sync))
    ]
    if senders == 1:
        return works
    together = partial(_bare_syncs, directory, records, trips, sync)
    at_once = partial(_syncs_at_once, directory, record * (senders // 2), 2 * trips, sync)
    return [
        *works,
        (f"baseline: fdatasync of {senders} at a time", total, together),
        ("baseline: the same in a thread", total, partial(_woken_syncs, directory, records, trips, sync)),
        ("bare, over bytes written before", total, partial(together, is_written=True)),
        ("bare, in two halves at once", total, at_once),
    ]


def _store_works(
    store: MessageStore, flush: CountedFlush, message: Message, senders: int, trips: int
) -> list[tuple[str, int, Work]]:
    total = senders * trips
    single = [
        ("append and wait", total, partial(_run_senders, store, flush, message, senders, total)),
        ("wait alone", total, partial(_run_senders, None, flush, message, senders, total)),
    ]
    together = [
        ("append a run and wait", total, partial(_run_together, store, flush, message, senders, total)),
        ("wait for a run alone", total, partial(_run_together, None, flush, message, senders, total)),
        ("append a run, sync here", total, partial(_flush_runs, store, flush, message, senders, total)),
    ]
    return [*single, *together] if senders > 1 else [*single]


def _measure(
    report: Report, group: str, works: Sequence[tuple[str, int, Work]], flush: CountedFlush, size_bytes: int
) -> None:
    """Take all in turns, so that what the machine does meanwhile comes to all."""
    seconds: dict[str, list[float]] = {name: [] for name, _, _ in works}
    flushes = dict.fromkeys(seconds, 0)
    for _ in range(_ROUNDS):
        for name, _, work in works:
            before = flush.count
            seconds[name].append(work())
            flushes[name] += flush.count - before
    for name, count, _ in works:
        report.add(Figure(group, name, statistics.median(seconds[name]), count, count * size_bytes))
    for name, count, _ in works:
        if name.endswith("and wait"):
            report.read(Reading(group, f"{name}: messages a sync", count * _ROUNDS / flushes[name], "messages"))


def _processor_time(
    report: Report, group: str, store: MessageStore, message: Message, directory: Path, senders: int
) -> None:
    """What a trip costs besides waiting, whatever else the machine does: the steps of both sides in turns.

    Records are made and appended after a sync, as they are in a trip: what they need is no longer in the caches.
    """
    rows, records = _rows_of(message) * senders, encode_message(message) * senders
    with _new_file(directory, _TRIPS_MIN * len(records)) as file:
        steps: dict[str, Callable[[int], object]] = {
            "bare: write": lambda number: os.pwrite(file.fileno(), records, number * len(records)),
            "bare: sync": lambda _: os.fdatasync(file.fileno()),
            "records encoded and appended": lambda _: _append_all(store, message, rows),
            "flush": lambda _: store.flush_log(),
            "records encoded only": lambda _: encode_run(rows, {}, 0, 0, sys.maxsize),
        }
        nanoseconds: dict[str, list[int]] = {name: [] for name in steps}
        for number in range(_TRIPS_MIN):
            for name, step in steps.items():
                started = time.thread_time_ns()
                step(number)
                nanoseconds[name].append(time.thread_time_ns() - started)
    for name, spent in nanoseconds.items():
        report.read(Reading(group, f"CPU time a flush, {name}", statistics.median(spent) / 1000, "µs"))


class CountedFlush:
    """The flush of a store, and how often it was made."""

    def __init__(self, flush: Callable[[], int]) -> None:
        self._flush = flush
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self._flush()


def _slow_sync(descriptor: int, *, slower_seconds: float) -> None:
    os.fdatasync(descriptor)
    time.sleep(slower_seconds)


def _flush_slowly(store: MessageStore, slower_seconds: float) -> int:
    flushed_to = store.flush_log()
    time.sleep(slower_seconds)
    return flushed_to


def _bare_syncs(
    directory: Path, records: bytes, count: int, sync: Callable[[int], None], *, is_written: bool = False
) -> float:
    with _new_file(directory, count * len(records)) as file:
        if is_written:
            for number in range(count):
                os.pwrite(file.fileno(), bytes(len(records)), number * len(records))
            os.fsync(file.fileno())

        def sync_each() -> None:
            for number in range(count):
                os.pwrite(file.fileno(), records, number * len(records))
                sync(file.fileno())

        return seconds_of(sync_each)


def _new_file(directory: Path, size_bytes: int) -> FileIO:
    """Create a file whose blocks are allocated, like those of the store.

    A new file each time, which is kept: freeing blocks is work for the disk and would count in the next line.
    """
    descriptor, name = tempfile.mkstemp(dir=directory)
    os.posix_fallocate(descriptor, 0, size_bytes)
    os.fsync(descriptor)
    os.close(descriptor)
    return FileIO(name, "r+")


def _syncs_at_once(directory: Path, records: bytes, count: int, sync: Callable[[int], None]) -> float:
    """Write and sync in two threads, each what is next."""
    numbers = iter(range(count))

    def sync_each() -> None:
        with FileIO(file.name, "r+") as own:
            for number in numbers:  # a thread has the interpreter's lock for such a step
                os.pwrite(own.fileno(), records, number * len(records))
                sync(own.fileno())

    def sync_all() -> None:
        threads = [threading.Thread(target=sync_each) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with _new_file(directory, count * len(records)) as file:
        return seconds_of(sync_all)


def _woken_syncs(directory: Path, records: bytes, count: int, sync: Callable[[int], None]) -> float:
    """Write in this thread and sync in another, as a broker does: two threads alternate."""
    written, synced = threading.Lock(), threading.Lock()
    written.acquire()
    synced.acquire()
    with _new_file(directory, count * len(records)) as file:

        def sync_each() -> None:
            for _ in range(count):
                written.acquire()
                sync(file.fileno())
                synced.release()

        def write_each() -> None:
            for number in range(count):
                os.pwrite(file.fileno(), records, number * len(records))
                written.release()
                synced.acquire()

        thread = threading.Thread(target=sync_each)
        thread.start()
        seconds = seconds_of(write_each)
        thread.join()
        return seconds


def _flush_runs(store: MessageStore, flush: Callable[[], int], message: Message, senders: int, count: int) -> float:
    """Append as many as would wait, and take them to the disk in this thread."""
    rows = _rows_of(message) * senders

    def flush_each() -> None:
        for _ in range(count // senders):
            _append_all(store, message, rows)
            flush()

    return seconds_of(flush_each)


def _rows_of(message: Message) -> list[Row]:
    return [measure_record(message)[1]]


def _append_all(store: MessageStore, message: Message, rows: list[Row]) -> list[tuple[int, int]]:
    places = store.append_run(rows)
    while len(places) < len(rows):
        stored = store.append(message)  # the log has to grow
        assert stored.physical_offset is not None and stored.queue_offset is not None
        places.append((stored.physical_offset, stored.queue_offset))
        places += store.append_run(rows[len(places) :])
    return places


def _run_senders(
    store: MessageStore | None, flush: Callable[[], int], message: Message, senders: int, count: int
) -> float:
    return uvloop.run(_waiting_senders(store, flush, message, senders, count))


async def _waiting_senders(
    store: MessageStore | None, flush: Callable[[], int], message: Message, senders: int, count: int
) -> float:
    """The flush queue of a broker; a sender sends its next message after its response."""
    all_answered = asyncio.get_running_loop().create_future()
    left, answered, written_to = count, 0, 0
    flushes = FlushQueue(flush if store else lambda: written_to, lambda: None, lambda: 60_000)

    class Sender:
        peer = "benchmark"

        def send(self) -> None:
            nonlocal left, written_to
            if left:
                left -= 1
                written_to = store.append(message).end if store else written_to + 1
                flushes.wait(written_to, cast(Connection, self), _REQUEST, b"")

        def respond_all(self, answers: Sequence[tuple[Command, bytes]]) -> None:
            nonlocal answered
            answered += len(answers)
            if answered == count:
                all_answered.set_result(None)
            self.send()

    started = time.perf_counter()
    for _ in range(senders):
        Sender().send()
    await all_answered
    seconds = time.perf_counter() - started
    await flushes.close()
    return seconds


def _run_together(
    store: MessageStore | None, flush: Callable[[], int], message: Message, senders: int, count: int
) -> float:
    return uvloop.run(_waiting_together(store, flush, message, senders, count))


async def _waiting_together(
    store: MessageStore | None, flush: Callable[[], int], message: Message, senders: int, count: int
) -> float:
    """The same if a broker reads the sends of all at once, since they are threads of one client."""
    all_answered = asyncio.get_running_loop().create_future()
    left, answered, written_to = count, 0, 0
    flushes = FlushQueue(flush if store else lambda: written_to, lambda: None, lambda: 60_000)
    rows = _rows_of(message) * senders

    class Shared:
        peer = "benchmark"

        def owe(self, _: int) -> None: ...

        def send(self, run: int) -> None:
            nonlocal left, written_to
            left -= run
            places = _append_all(store, message, rows[:run]) if store else [(0, 0)] * run
            written_to = store.written_to if store else written_to + run
            frames = [_ANSWER % place for place in places]
            flushes.wait_run(written_to, cast(Connection, self), frames, [b"1"] * len(frames))

        def respond_owed(self, frames: list[bytes]) -> None:
            nonlocal answered
            answered += len(frames)
            if answered == count:
                all_answered.set_result(None)
            elif left:
                self.send(min(len(frames), left))

    started = time.perf_counter()
    Shared().send(senders)
    await all_answered
    seconds = time.perf_counter() - started
    await flushes.close()
    return seconds
