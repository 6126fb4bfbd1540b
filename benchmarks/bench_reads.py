"""Reading queues 32 messages at a time, out of the page cache and out of the disk, beside a plain read of the log."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench_store import now_ms
from benchmarks.bulk_log import LogShape, write_log
from benchmarks.measure import Figure, Reading, Report, median_of, seconds_of
from benchmarks.page_cache import bytes_read_from_disk, drop_from_cache, files_below
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.storefiles.store_config import StoreConfig

_QUEUES = LogShape(0, 0).topics * LogShape(0, 0).queues


def run(report: Report, *, count: int) -> None:
    for body_bytes in (128, 1024):
        with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
            shape = LogShape(count, body_bytes)
            root = Path(directory, "store")
            write_log(root, shape)
            _open(root).close()
            _read(report, root, shape)


def _open(root: Path) -> MessageStore:
    return MessageStore.open(root, StoreConfig(), now_ms)


def _read(report: Report, root: Path, shape: LogShape) -> None:
    where = f"{shape.log_bytes >> 20} MiB, {_QUEUES} queues, {shape.body_bytes} B bodies"

    def add(group: str, name: str, seconds: float, parts: int = 1) -> None:
        report.add(Figure(group, name, seconds, shape.count // parts, shape.log_bytes // parts))

    hot = f"batched reads, page cache hot, {where}"
    add(hot, "baseline: plain read of the log", median_of(lambda: _plain(root, shape)))
    with _open(root) as store:
        _read_all(store, shape)
        add(hot, "every queue, 32 at a time", median_of(lambda: _read_all(store, shape), 3))
    cold = f"batched reads, page cache cold, {where}"
    fetched, seconds = _cold(root, lambda: _plain(root, shape))
    add(cold, "baseline: plain read of the log", seconds)
    report.read(Reading(cold, "read from the disk by the plain read", fetched / 2**20, "MiB"))
    # Opened while the pages are there: opening is measured elsewhere, and its maps keep no page that it did not touch.
    fetched, seconds = _cold_store(root, lambda store: _read_all(store, shape))
    add(cold, "every queue, 32 at a time", seconds)
    report.read(Reading(cold, "read from the disk by reading the queues", fetched / 2**20, "MiB"))
    _, seconds = _cold_store(root, lambda store: _read_queue(store, shape, 0))
    add(cold, "one queue of them, 32 at a time", seconds, _QUEUES)


def _plain(root: Path, shape: LogShape) -> None:
    """Read the log into a buffer of 1 MiB, without the rest of its last segment."""
    buffer, left_bytes = bytearray(1 << 20), shape.log_bytes
    for path in files_below(root / "commitlog"):
        with path.open("rb", buffering=0) as file:
            while left_bytes > 0 and (count := file.readinto(buffer)):
                left_bytes -= count


def _cold(root: Path, work: Callable[[], object]) -> tuple[int, float]:
    drop_from_cache(files_below(root))
    before = bytes_read_from_disk()
    seconds = seconds_of(work)
    return bytes_read_from_disk() - before, seconds


def _cold_store(root: Path, work: Callable[[MessageStore], object]) -> tuple[int, float]:
    drop_from_cache(files_below(root))
    with _open(root) as store:
        before = bytes_read_from_disk()
        seconds = seconds_of(lambda: work(store))
        return bytes_read_from_disk() - before, seconds


def _read_all(store: MessageStore, shape: LogShape) -> None:
    for queue_number in range(_QUEUES):
        _read_queue(store, shape, queue_number)


def _read_queue(store: MessageStore, shape: LogShape, queue_number: int) -> None:
    topic, queue_id, queue_offset = shape.topic(queue_number), queue_number % shape.queues, 0
    while True:
        result = store.get(topic, queue_id, ReadRequest(queue_offset, 32))
        if result.status is not GetStatus.FOUND:
            break
        queue_offset = result.next_offset
    messages = -(-(shape.count - queue_number) // _QUEUES)
    assert queue_offset == messages, f"{queue_offset} of {messages} messages were read"
