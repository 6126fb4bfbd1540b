"""Store contents: every kind of directory is either understood or refused, and refusing changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.store_reader import StoreReader
from orbitlog.storefiles.store_contents import ALL_PARTS, Content, Part, find_obstacles, refuse_reading, refuse_writing
from orbitlog.testing.golden import GoldenStore
from tests.support.store_kinds import CONFIG, HARMLESS, KINDS, STORED_MS, fingerprint, make_store


@pytest.mark.parametrize("kind", KINDS)
def test_engine_given_an_unsupported_store_refuses_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    make_store(tmp_path)
    KINDS[kind](tmp_path)
    before = fingerprint(tmp_path)
    with pytest.raises(StoreLayoutError) as refused:
        MessageStore.open(tmp_path, CONFIG, lambda: STORED_MS)
    assert fingerprint(tmp_path) == before
    sentence = str(refused.value)
    obstacle = next(find_obstacles(tmp_path))
    assert str(obstacle.path) in sentence
    assert obstacle.advice in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("kind", HARMLESS)
def test_engine_given_a_harmless_leftover_opens_and_keeps_it(kind: str, tmp_path: Path) -> None:
    make_store(tmp_path)
    HARMLESS[kind](tmp_path)
    assert list(find_obstacles(tmp_path)) == []
    before = fingerprint(tmp_path)
    with MessageStore.open(tmp_path, CONFIG, lambda: STORED_MS) as store:
        queue = store.queue("T", 0)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (0, 30)
    after = fingerprint(tmp_path)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed <= {"orbitlog.state", "checkpoint"}


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
def test_golden_stores_of_java_brokers_are_understood(name: str, request: pytest.FixtureRequest) -> None:
    golden: GoldenStore = request.getfixturevalue(name)
    assert list(find_obstacles(golden.store)) == []
    refuse_reading(golden.store)
    refuse_writing(golden.store)


def test_missing_and_empty_directories_are_understood(tmp_path: Path) -> None:
    assert list(find_obstacles(tmp_path / "missing")) == []
    assert list(find_obstacles(tmp_path)) == []


def test_reading_is_refused_only_for_the_parts_that_are_not_covered(tmp_path: Path) -> None:
    make_store(tmp_path)
    KINDS["RocksDB queues"](tmp_path)
    refuse_reading(tmp_path, Part.LOG)
    with pytest.raises(StoreLayoutError, match="RocksDB"):
        refuse_reading(tmp_path, Part.LOG | Part.QUEUES)
    with pytest.raises(StoreLayoutError, match="RocksDB"):
        StoreReader.open(tmp_path, CONFIG)


def test_dledger_log_hides_messages_from_every_reader(tmp_path: Path) -> None:
    make_store(tmp_path)
    KINDS["converted to DLedger"](tmp_path)
    for part in Part:
        with pytest.raises(StoreLayoutError, match="DLedger"):
            refuse_reading(tmp_path, part)
    assert [one.parts for one in find_obstacles(tmp_path)] == [ALL_PARTS]


def test_several_obstacles_are_counted_in_one_sentence(tmp_path: Path) -> None:
    make_store(tmp_path)
    for kind in ("RocksDB topics", "RocksDB offsets", "unknown directory"):
        KINDS[kind](tmp_path)
    assert {one.content for one in find_obstacles(tmp_path)} == {Content.ROCKSDB_TABLES, Content.UNKNOWN_DIRECTORY}
    with pytest.raises(StoreLayoutError, match="2 more"):
        refuse_writing(tmp_path)


def test_directory_with_very_many_entries_is_looked_at_within_bounds(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / "streams" / f"{number:03d}").mkdir(parents=True)
    assert [one.content for one in find_obstacles(tmp_path)] == [Content.UNKNOWN_DIRECTORY]
