"""A store's numbers, and rates between two looks."""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.store_numbers import StoreRates, rates_between
from orbitlog.storefiles.store_config import StoreConfig

CONFIG = StoreConfig(StoreGeometry(4096, 200, index_layout=IndexLayout(10, 30)), message_bytes_max=1000)


def test_numbers_follow_what_happens(tmp_path: Path) -> None:
    now_ms = [1_000]
    with MessageStore.open(tmp_path, CONFIG, lambda: now_ms[0]) as store:
        before = store.numbers()
        assert (before.messages_appended, before.written_to, before.segment_count) == (0, 0, 0)
        for number in range(10):
            store.append(make_message("T", b"x" * 900, properties={"KEYS": f"k{number}"}, queue_id=number % 2))
        store.append(make_message("T", b"x" * 1001))
        now_ms[0] += 2_000
        after = store.numbers()
        assert (after.messages_appended, after.messages_refused) == (10, 1)
        assert after.segment_count == 3
        assert after.dispatch_lag_bytes == after.flush_lag_bytes == after.written_to > 9_000
        rates = rates_between(before, after)
        assert rates == StoreRates(5.0, after.bytes_appended / 2, 0.5, 0.0, 0.0)
        store.dispatch_once()
        store.flush_log()
        now_ms[0] += 4_000
        done = store.numbers()
        rates = rates_between(after, done)
        assert rates.flushed_bytes_per_second == rates.dispatched_bytes_per_second == done.written_to / 4
        assert (done.dispatch_lag_bytes, done.flush_lag_bytes) == (0, 0)
        assert (done.queue_count, done.unit_count, done.key_count, done.index_file_count) == (2, 10, 10, 1)
        assert rates_between(done, done) == StoreRates(0.0, 0.0, 0.0, 0.0, 0.0)
