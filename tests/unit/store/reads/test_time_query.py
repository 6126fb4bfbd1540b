"""Messages of a topic by their store time, newest first, complete or marked as incomplete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.time_query import TimeQuery
from orbitlog.storefiles.store_config import StoreConfig

CONFIG = StoreConfig(StoreGeometry(segment_bytes=8192, queue_file_bytes=100, index_layout=IndexLayout(10, 30)))
BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """Sixty messages in three queues, two each millisecond; another topic between them."""
    times = iter(BEGIN_MS + number // 2 for number in range(1000))
    with MessageStore.open(tmp_path, CONFIG, lambda: next(times)) as opened:
        assert opened.earliest_log_time_ms() == -1
        for number in range(60):
            opened.append(make_message("T" if number % 5 else "Other", b"%d" % number, queue_id=number % 3))
        yield opened


def found(store: MessageStore, begin: int, end: int, limit: int = 100) -> list[int]:
    query = TimeQuery("T", BEGIN_MS + begin, BEGIN_MS + end, limit)
    return [int(message.body) for message in store.query_by_time(query).messages]


def test_a_window(store: MessageStore) -> None:
    store.dispatch_once()
    mine = [number for number in range(60) if number % 5]
    taken_ms = {number: number // 2 for number in mine}
    assert found(store, 5, 8) == [number for number in reversed(mine) if 5 <= taken_ms[number] <= 8]
    assert found(store, -100, 1000) == mine[::-1]
    assert found(store, 30, 1000) == []
    assert found(store, -10, -1) == []
    assert found(store, 8, 5) == []
    assert store.earliest_log_time_ms() == BEGIN_MS


def test_it_states_when_there_is_more(store: MessageStore) -> None:
    behind = store.query_by_time(TimeQuery("T"))
    assert not behind.complete
    assert "behind the log" in behind.reason
    store.dispatch_once()
    assert found(store, 0, 100, limit=3) == [59, 58, 57]
    cut = store.query_by_time(TimeQuery("T", limit=47))
    assert (cut.complete, cut.reason) == (False, "there are more than 47")
    assert store.query_by_time(TimeQuery("T", limit=48)).complete
    assert store.query_by_time(TimeQuery("Nobody")).messages == []
