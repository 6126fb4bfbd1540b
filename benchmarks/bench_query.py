"""Finding one message by its key among millions, over every index file."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from benchmarks.bench_store import now_ms
from benchmarks.bulk_log import LogShape, write_log
from benchmarks.measure import Figure, Reading, Report, percentiles, seconds_of
from benchmarks.page_cache import drop_from_cache, files_below
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.storefiles.store_config import StoreConfig

_BODY_BYTES = 128
_QUERIES = 3_000


def run(report: Report, *, count: int) -> None:
    group = f"query by key over {count:,} messages, {_BODY_BYTES} B bodies, index files of the default layout"
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        shape, root = LogShape(count, _BODY_BYTES), Path(directory, "store")
        seconds = seconds_of(lambda: write_log(root, shape))
        report.add(Figure(group, "baseline: the log written", seconds, count, shape.log_bytes))
        opened: list[MessageStore] = []
        seconds = seconds_of(lambda: opened.append(_open(root)))
        report.add(Figure(group, "queues and index derived by opening it", seconds, count, shape.log_bytes))
        with opened.pop() as store:
            numbers = store.numbers()
            report.read(Reading(group, "keys in the index (key, unique key, tags)", numbers.key_count, "keys"))
            report.read(Reading(group, "index files", numbers.index_file_count, "files"))
            _query(report, group, store, shape, "page cache warm")
        drop_from_cache(files_below(root))
        with _open(root) as store:
            _query(report, group, store, shape, "page cache cold")


def _open(root: Path) -> MessageStore:
    return MessageStore.open(root, StoreConfig(), now_ms)


def _query(report: Report, group: str, store: MessageStore, shape: LogShape, cache: str) -> None:
    chance, took_ms = random.Random(1), []
    for _ in range(_QUERIES):
        number = chance.randrange(shape.count)
        topic, key = shape.topic(number % (shape.topics * shape.queues)), shape.key(number)
        started = time.perf_counter()
        found = store.query(KeyQuery(topic, key))
        took_ms.append((time.perf_counter() - started) * 1e3)
        assert [message.properties["KEYS"] for message in found.messages] == [key], f"{key} was not found"
    p50, p99 = percentiles(took_ms)
    report.read(Reading(group, f"one key, {cache}, p50", p50, "ms"))
    report.read(Reading(group, f"one key, {cache}, p99", p99, "ms"))
