"""Memory of a store while millions of messages are appended and deleted.

Segments are small and retention deletes them at once, so that the disk stays bounded. Pages of mapped files count as
memory of the process (RssFile) until the system reclaims them; the private memory of the store is the rest (RssAnon).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.make_log import template
from benchmarks.measure import Reading, Report
from orbitlog.formats.records.message import Message
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

_SEGMENT_BYTES = 64 << 20
_CONFIG = StoreConfig(
    StoreGeometry(segment_bytes=_SEGMENT_BYTES, queue_file_bytes=600_000),
    retention=RetentionPolicy(reserved_hours=0, delete_hours=tuple(range(24))),
)
_GROWTH_LIMIT_MIB = 16.0


def run(report: Report, *, steps: int, per_step: int) -> None:
    group = f"memory over {steps * per_step:,} appends, 128 B bodies, segments of {_SEGMENT_BYTES >> 20} MiB deleted"
    messages = [
        template(number, b"x" * 128, f"TopicOrderEvents{number % 16:02d}", number % 8) for number in range(1000)
    ]
    anonymous = []
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        with MessageStore.open(Path(directory, "store"), _CONFIG, lambda: time.time_ns() // 1_000_000) as store:
            for step in range(1, steps + 1):
                _one_step(store, messages, per_step)
                anon, file = _resident_mib()
                anonymous.append(anon)
                at = f"after {step * per_step:,}"
                report.read(Reading(group, f"{at}: private memory (RssAnon)", anon, "MiB"))
                report.read(Reading(group, f"{at}: pages of mapped files (RssFile)", file, "MiB"))
            report.read(Reading(group, "segments left", store.numbers().segment_count, "files"))
    growth = anonymous[-1] - anonymous[0]
    report.read(Reading(group, "growth of private memory since the first step", growth, "MiB", _GROWTH_LIMIT_MIB))


def _one_step(store: MessageStore, messages: list[Message], count: int) -> None:
    for _ in range(count // len(messages)):
        for message in messages:
            store.append(message)
        store.dispatch_once(1 << 30)
        if store.written_to - store.flushed_to > _SEGMENT_BYTES // 4:
            store.flush_derived()
            store.retain_once()


def _resident_mib() -> tuple[float, float]:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith("Rss")}
    return found["RssAnon"], found["RssFile"]
