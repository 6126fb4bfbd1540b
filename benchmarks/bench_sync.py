"""Senders that wait for the disk, beside bare fdatasync of the same bytes: one by one, and as many at once as wait."""

from __future__ import annotations

import asyncio
import os
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.bench_store import now_ms
from benchmarks.make_log import template
from benchmarks.measure import Figure, Report, median_of
from orbitlog.formats.message import Message, encode_message
from orbitlog.store.message_store import MessageStore
from orbitlog.store.store_config import StoreConfig

_ROUNDS = 3


def run(report: Report, *, count: int) -> None:
    message = template(1, b"x" * 1024, "TopicOrderEvents00", 0)
    record = encode_message(message)
    for senders in (1, 8, 64):
        group = f"sync flush, 1 KB bodies, {senders} waiting at a time"
        total = max(count, senders * 10) // senders * senders
        with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
            raw = Path(directory, "raw")
            bare = median_of(partial(_bare_syncs, raw, record, total), _ROUNDS)
            report.add(Figure(group, "baseline: fdatasync of each", bare, total, total * len(record)))
            if senders > 1:
                together = median_of(partial(_bare_syncs, raw, record * senders, total // senders), _ROUNDS)
                name = f"baseline: fdatasync of {senders} at a time"
                report.add(Figure(group, name, together, total, total * len(record)))
            with MessageStore.open(Path(directory, "store"), StoreConfig(sync_flush=True), now_ms) as store:
                senders_run = partial(_run_senders, store, message, senders, total)
                seconds = median_of(senders_run, _ROUNDS)
            report.add(Figure(group, "append and wait", seconds, total, total * len(record)))


def _bare_syncs(path: Path, record: bytes, count: int) -> None:
    with path.open("w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, count * len(record))
        for number in range(count):
            os.pwrite(file.fileno(), record, number * len(record))
            os.fdatasync(file.fileno())


def _run_senders(store: MessageStore, message: Message, senders: int, count: int) -> None:
    asyncio.run(_waiting_senders(store, message, senders, count))


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
