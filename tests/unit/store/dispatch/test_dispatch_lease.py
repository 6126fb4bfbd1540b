"""The lease between a broker and an engine outside: who may write when, what the broker sees, how it gets it back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orbitlog.errors import LeaseLost, StoreLocked
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.dispatch_marks import LEASE_FILE, MARKS_FILE
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.records.message import Message, make_message
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.dispatch.external_dispatch import ExternalDispatch
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.reads.queue_reader import GetStatus, ReadRequest
from orbitlog.storefiles.store_config import StoreConfig

CONFIG = StoreConfig(
    StoreGeometry(
        segment_bytes=4096,
        queue_file_bytes=5 * ENTRY_BYTES,
        index_layout=IndexLayout(slot_count=7, entry_count=20),
    ),
    DeriveRules(),
    retention=RetentionPolicy(reserved_hours=1, delete_hours=tuple(range(24))),
    segment_allocate_bytes=4096,
)
NOW_MS = 1_700_000_000_000


def message(number: int, topic: str = "Orders") -> Message:
    return make_message(topic, b"x" * 100, properties={"KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"}, queue_id=0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    opened = MessageStore.open(tmp_path / "store", CONFIG, lambda: NOW_MS)
    yield opened
    with suppress(StoreLocked):
        opened.close()


def take(store: MessageStore) -> ExternalDispatch:
    return ExternalDispatch.take(store._root, "spark")


def test_a_store_that_never_handed_over_has_no_lease(store: MessageStore) -> None:
    assert not (store._root / LEASE_FILE).exists()
    assert store.is_dispatch_inline
    assert store.dispatch_lease.engine == "inline"
    with pytest.raises(LeaseLost, match="no broker with external dispatch"):
        take(store)


def test_it_is_taken_once_and_the_broker_follows(store: MessageStore) -> None:
    store.append(message(1))
    assert len(store.dispatch_once()) == 1
    store.hand_over_dispatch()
    assert store.is_dispatch_orphaned
    store.append(message(2))
    assert store.dispatch_once() == []
    with_lease = take(store)
    assert (store.dispatch_lease.engine, store.dispatch_lease.epoch) == ("spark", 2)
    assert not store.is_dispatch_orphaned
    with pytest.raises(LeaseLost, match="held by engine spark, process"):
        take(store)
    with_lease.dispatch_once()
    (arrival,) = store.dispatch_once()
    assert (arrival.topic, arrival.queue_id, arrival.queue_offset) == ("Orders", 0, 1)
    result = store.get("Orders", 0, ReadRequest(1, 10))
    assert (result.status, len(result.records), result.max_offset) == (GetStatus.FOUND, 1, 2)
    assert [found.properties["KEYS"] for found in store.query(KeyQuery("Orders", "k2")).messages] == ["k2"]
    with_lease.hand_back()


def test_a_recalled_engine_cannot_write_any_more(store: MessageStore) -> None:
    store.hand_over_dispatch()
    with_lease = take(store)
    store.append(message(1))
    assert not store.take_back_dispatch()
    assert not with_lease.is_wanted
    with pytest.raises(LeaseLost, match="dispatches itself"):
        with_lease.dispatch_once()
    with pytest.raises(LeaseLost, match="dispatches itself"):
        take(store)  # the lease still names the recalled engine
    assert store.dispatch_once() == [], "it is not back yet"
    with_lease.hand_back()
    assert [arrival.queue_offset for arrival in store.dispatch_once()] == [0]
    assert store.is_dispatch_inline
    with pytest.raises(LeaseLost):
        take(store)


def test_an_engine_whose_lease_another_has_cannot_write(store: MessageStore) -> None:
    store.hand_over_dispatch()
    old = take(store)
    old._files.unlock()  # as a file system does that loses its locks
    new = take(store)
    store.append(message(1))
    store.dispatch_once()
    with pytest.raises(LeaseLost, match="now belongs to engine spark"):
        old.dispatch_once()
    new.dispatch_once()
    old.hand_back()
    assert store.dispatch_lease.owner == new.lease.owner
    assert not store.dispatch_lease.is_released
    assert len(store.dispatch_once()) == 1
    new.hand_back()


def test_without_a_broker_nothing_is_dispatched(store: MessageStore) -> None:
    store.hand_over_dispatch()
    with_lease = take(store)
    store.append(message(1))
    store.dispatch_once()
    store._opened.locks.close()  # as when its process dies
    assert not with_lease.is_wanted
    with pytest.raises(LeaseLost, match="no broker has"):
        with_lease.dispatch_once()
    with_lease.hand_back()
    with pytest.raises(LeaseLost, match="no broker has"):
        take(store)
    store._lock = store._opened.disk.lock_file(store._root / tree.LOCK, b"lock")


def test_closing_waits_for_the_engine_and_is_unclean_without_it(store: MessageStore) -> None:
    store.hand_over_dispatch()
    with_lease = take(store)
    store.append(message(1))
    with pytest.raises(StoreLocked, match="held by engine spark"):
        store.close()
    assert (store._root / tree.ABORT).exists()
    with pytest.raises(StoreLocked, match="held by engine spark"):
        MessageStore.open(store._root, CONFIG, lambda: NOW_MS)
    with_lease.hand_back()
    with MessageStore.open(store._root, CONFIG, lambda: NOW_MS) as again:
        assert again.dispatched_to == again.written_to > 0
        assert again.dispatch_lease.engine == "inline"
    assert not (store._root / tree.ABORT).exists()


def test_opening_with_sleep_waits_until_the_engine_hands_back(store: MessageStore) -> None:
    store.hand_over_dispatch()
    with_lease = take(store)
    store.append(message(1))
    with pytest.raises(StoreLocked, match="held by engine spark"):
        store.close()
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            with_lease.hand_back()

    with MessageStore.open(store._root, CONFIG, lambda: NOW_MS, sleep=sleep) as reopened:
        assert reopened.dispatched_to == reopened.written_to > 0
    assert naps == [0.02] * 3


def test_a_store_opened_for_spark_hands_over_at_once(tmp_path: Path) -> None:
    from dataclasses import replace

    with MessageStore.open(tmp_path, replace(CONFIG, dispatch_engine="spark"), lambda: NOW_MS) as store:
        assert not store.is_dispatch_inline
        with_lease = take(store)
        store.append(message(1))
        store.dispatch_once()
        with_lease.dispatch_once()
        with_lease.hand_back()
    assert MessageStore.open(tmp_path, CONFIG, lambda: NOW_MS).close() is None


def test_retention_continues_while_another_dispatches(store: MessageStore) -> None:
    store.hand_over_dispatch()
    with_lease = take(store)
    for number in range(100):
        store.append(message(number, f"Topic{number % 2}"))
        if number % 7 == 0:
            store.dispatch_once()
            with_lease.dispatch_once()
    store._now_ms = lambda: NOW_MS * 10  # every segment has expired by then
    store.flush_derived()
    deleted = store.retain_once()
    assert len(deleted.segments) > 2
    assert deleted.queue_file_count > 0
    assert deleted.index_file_count > 0
    store.append(message(100))
    store.dispatch_once()
    with_lease.dispatch_once()
    store.dispatch_once()
    assert store.get("Orders", 0, ReadRequest(0, 1)).status is GetStatus.FOUND
    with_lease.hand_back()


def test_damaged_marks_and_leases_are_recreated(store: MessageStore) -> None:
    store.hand_over_dispatch()
    store.append(message(1))
    store.close()
    root = store._root
    (root / LEASE_FILE).write_bytes(b"{")
    (root / MARKS_FILE).write_bytes(b"short")
    with MessageStore.open(root, CONFIG, lambda: NOW_MS) as again:
        again.hand_over_dispatch()
        with_lease = take(again)
        assert with_lease.dispatched_to == again.written_to
        with_lease.hand_back()


def test_the_engine_goes_by_the_brokers_settings(store: MessageStore) -> None:
    store.hand_over_dispatch()
    with_lease = take(store)
    assert with_lease.config.geometry == CONFIG.geometry
    assert with_lease.config.rules == CONFIG.rules
    with_lease.hand_back()


def test_a_lease_without_settings_is_of_no_use(store: MessageStore) -> None:
    store.hand_over_dispatch()
    lease = store._root / LEASE_FILE
    lease.write_text(lease.read_text().replace("maxIndexNum", "maxIndexNumber"))
    with pytest.raises(LeaseLost, match="lacks maxIndexNum"):
        take(store)
