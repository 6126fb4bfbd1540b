"""Appending and all that follows, beside raw copies into a map and Apache's own store on the same machine."""

from __future__ import annotations

import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.java_store import VERSION, append_with_java
from benchmarks.make_log import template
from benchmarks.measure import Figure, Report, best_of, seconds_of
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from tests.interop.harness.packages import NotAvailable

_ROUNDS = 3


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def run(report: Report, *, count: int) -> None:
    for body_bytes in (128, 1024):
        messages = [
            template(number, b"x" * body_bytes, f"TopicOrderEvents{number % 16:02d}", number % 8)
            for number in range(1000)
        ]
        _append_and_read(report, messages, body_bytes, count)


def _append_and_read(report: Report, messages: list[Message], body_bytes: int, count: int) -> None:
    group = f"the store, {body_bytes} B bodies, one key, unique key and tags, async flush"
    records = [encode_message(message) for message in messages]
    rounds = count // len(messages)
    size_bytes = sum(map(len, records)) * rounds

    def add(name: str, seconds: float, times: int = 1) -> None:
        report.add(Figure(group, name, seconds, times * rounds * len(messages), times * size_bytes))

    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        add("baseline: copies into a map", best_of(lambda: _raw_copies(Path(directory, "raw"), records, rounds), 3))
        _add_java(add, body_bytes, rounds * len(messages))
        store = MessageStore.open(Path(directory, "store"), StoreConfig(), now_ms)
        appends, dispatches = [], []
        for _ in range(_ROUNDS):
            appends.append(seconds_of(lambda: _append(store, messages, rounds)))
            dispatches.append(seconds_of(lambda: _dispatch(store)))
        both = [append + dispatch for append, dispatch in zip(appends, dispatches, strict=True)]
        add("append", statistics.median(appends))
        add("dispatch, step by step", statistics.median(dispatches))
        add("append, then dispatch: one thread", statistics.median(both))
        add("flush log and derived files", seconds_of(store.flush_derived), _ROUNDS)
        add("close", seconds_of(store.close), _ROUNDS)
        add("open, closed cleanly", seconds_of(lambda: _open(directory).close()), _ROUNDS)
        Path(directory, "store", "orbitlog.state").unlink()
        add("open, without a valid state file", seconds_of(lambda: _open(directory).close()), _ROUNDS)


def _add_java(add: Callable[[str, float], None], body_bytes: int, count: int) -> None:
    """Apache's store appends with one thread and dispatches with another; the first rounds warm its compiler up."""
    try:
        java = append_with_java(body_bytes, count, 2 * _ROUNDS)[_ROUNDS:]
    except NotAvailable as reason:
        print(f"  without Apache's store: {reason}")
        return
    add(f"baseline: Java {VERSION} append", statistics.median(each.append_seconds for each in java))
    add(
        f"baseline: Java {VERSION} append and dispatch, two threads",
        statistics.median(each.dispatched_seconds for each in java),
    )


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
