"""Missing tables: a store with messages is not opened without the tables that it must have had."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import pytest

from orbitlog.broker.runtime.broker_opening import open_broker_store
from orbitlog.broker.runtime.broker_settings import load_broker_settings
from orbitlog.broker.tables.config_directory import BROKER_TABLES, ConfigDirectory
from orbitlog.doctor.move.move_rows import MoveSeverity
from orbitlog.doctor.move.store_move import ORBITLOG, MoveWish, survey_move
from orbitlog.errors import StoreError, StoreLayoutError
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.tables.topic_config import TOPICS as TOPIC_TABLE
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.disk import RealDisk
from tests.support.store_kinds import fingerprint, make_store, put

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "10",
    "maxIndexNum": "30",
}
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
TOPICS = {name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for name in ("T", "%RETRY%G")}


def java_store(root: Path) -> None:
    """Make a store as a Java broker leaves it at a clean stop, with a delayed message."""
    make_store(root)
    for path in root.glob("orbitlog.*"):
        path.unlink()
    put(root / "consumequeue/SCHEDULE_TOPIC_XXXX/0/00000000000000000000", bytes(200))
    put(root / "config/topics.json", json.dumps({"topicConfigTable": TOPICS}).encode())
    put(root / "config/subscriptionGroup.json", b'{"subscriptionGroupTable":{}}')
    put(root / "config/consumerOffset.json", b'{"offsetTable":{"T@G":{0:1}}}')
    put(root / "config/delayOffset.json", b'{"offsetTable":{1:1}}')


def start(root: Path, **texts: str) -> None:
    settings = load_broker_settings(None, [f"{key}={text}" for key, text in (SIZES | texts).items()], {}, {})
    open_broker_store(settings, root, now_ms=lambda: 1).store.close()


def remove(root: Path, tables: Iterable[str]) -> None:
    for name in tables:
        (root / "config" / name).unlink()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    java_store(tmp_path / "store")
    return tmp_path / "store"


def test_store_of_a_java_broker_with_its_tables_is_opened(root: Path) -> None:
    start(root)


@pytest.mark.parametrize("gone", [gone for count in range(1, 5) for gone in combinations(TABLES, count)])
def test_store_that_lacks_tables_is_refused_and_stays_as_it_is(gone: tuple[str, ...], root: Path) -> None:
    remove(root, gone)
    before = fingerprint(root)
    with pytest.raises(StoreLayoutError) as error:
        start(root)
    assert fingerprint(root) == before
    # Retry topics are in topics.json: without it nothing shows that there were groups.
    expected = set(gone) - ({"subscriptionGroup.json"} if "topics.json" in gone else set())
    assert all(name in str(error.value) for name in expected)
    rows = survey_move(root, MoveWish(ORBITLOG, SIZES, is_quick=True), StoreSettings())
    assert [str(error.value)] == [row.sentence for row in rows if row.severity is MoveSeverity.REFUSED]


@pytest.mark.parametrize("table", TABLES)
def test_table_is_not_missing_if_its_backup_exists(table: str, root: Path) -> None:
    (root / "config" / table).rename(root / "config" / f"{table}.bak")
    start(root)


@pytest.mark.parametrize("table", TABLES)
def test_empty_table_starts_the_store_without_it(table: str, root: Path) -> None:
    (root / "config" / table).write_text("{}")
    start(root)


@pytest.mark.parametrize("table", [file.name for file in BROKER_TABLES])
@pytest.mark.parametrize("content", [b'{"x', bytes(100)], ids=["cut off", "zeros"])
def test_store_with_an_unreadable_table_is_refused_and_stays_as_it_is(content: bytes, table: str, root: Path) -> None:
    put(root / "config" / table, content)
    before = fingerprint(root)
    with pytest.raises(StoreError, match=f"cannot read .*{table}"):
        start(root)
    assert fingerprint(root) == before


def test_table_that_changes_while_the_store_is_opened_is_read_again(root: Path) -> None:
    directory = ConfigDirectory(RealDisk(), root, COMPAT_5_5)
    directory.check(TOPIC_TABLE)
    put(root / "config/topics.json", b'{"topicConfigTable":{"New":{"topicName":"New"}}}')
    loaded = directory.load(TOPIC_TABLE)
    assert loaded is not None and set(loaded.topics) == {"New"}


def test_store_without_queues_and_delay_offsets_is_refused(root: Path) -> None:
    (root / "consumequeue").rename(root.parent / "away")
    remove(root, ["delayOffset.json"])
    with pytest.raises(StoreLayoutError, match="delayed messages are delivered a second time"):
        start(root)


@pytest.mark.parametrize("mark", ["abort", "orbitlog.state"])
def test_offsets_missing_after_a_kill_are_reported(mark: str, root: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove(root, ["consumerOffset.json", "delayOffset.json"])
    put(root / mark, b"")
    start(root)
    assert "consumerOffset.json is missing: every consumer group starts over" in caplog.text
    assert "delayOffset.json is missing: delayed messages are delivered a second time" in caplog.text


@pytest.mark.parametrize("mark", ["abort", "other"])
def test_timer_messages_without_their_checkpoint_are_refused(mark: str, root: Path) -> None:
    put(root / "consumequeue/rmq_sys_wheel_timer/0/00000000000000000000", bytes(200))
    put(root / "timerlog/00000000000000000000", bytes(52))
    put(root / mark, b"")
    before = fingerprint(root)
    with pytest.raises(StoreLayoutError, match=r"timercheck is missing, .* POP messages are delivered a second time"):
        start(root)
    assert fingerprint(root) == before
    put(root / "config/timercheck", bytes(40))
    start(root)


def test_timer_files_that_a_repair_has_removed_are_reported(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(root / "consumequeue/rmq_sys_wheel_timer/0/00000000000000000000", bytes(200))
    start(root)
    assert "timercheck is missing: timer and POP messages are delivered a second time" in caplog.text


def test_tables_that_a_killed_orbitlog_has_not_saved_yet_are_reported(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remove(root, TABLES)
    for mark in ("abort", "orbitlog.state"):
        put(root / mark, b"")
    start(root)
    assert "topics.json is missing: its topics would be unknown to clients" in caplog.text


def test_store_that_no_group_has_read_needs_no_offsets(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove(root, ["consumerOffset.json"])
    put(root / "config/topics.json", json.dumps({"topicConfigTable": {"T": TOPICS["T"]}}).encode())
    put(root / "orbitlog.state", b"")
    start(root)
    assert "consumerOffset.json" not in caplog.text


def test_tables_that_a_closed_orbitlog_has_saved_are_refused(root: Path) -> None:
    remove(root, ["topics.json"])
    put(root / "orbitlog.state", b"")
    with pytest.raises(StoreLayoutError, match=r"topics\.json is missing, but"):
        start(root)


def test_slave_gets_its_tables_from_the_master(root: Path) -> None:
    remove(root, TABLES)
    start(root, brokerId="1", brokerRole="SLAVE")


def test_new_store_is_opened(tmp_path: Path) -> None:
    start(tmp_path / "new")
