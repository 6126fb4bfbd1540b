"""Rows of a move report, each kind from a small store that has it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from orbitlog.doctor.move.move_rows import MoveRow, is_free, refused
from orbitlog.doctor.move.store_move import JAVA, ORBITLOG, MoveWish, survey_move
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.dispatch_marks import LEASE_LOCK_FILE
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.disk import RealDisk
from tests.support.store_kinds import CONFIG, STORED_MS, make_store, put

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "10",
    "maxIndexNum": "30",
    "brokerName": "broker-a",
    "bindAddress": "0.0.0.0",
    "timerMaxDelaySec": "259200",
    "recallMessageEnable": "true",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_store(tmp_path / "store")
    topics = '"T":{"topicName":"T","readQueueNums":4,"writeQueueNums":4,"perm":6}'
    put(tmp_path / "store/config/topics.json", f'{{"topicConfigTable":{{{topics}}}}}'.encode())
    return tmp_path / "store"


def moved(root: Path, target: str, texts: dict[str, str] | None = None, **wish: object) -> list[MoveRow]:
    asked = MoveWish(target, texts or SIZES, **wish)  # type: ignore[arg-type]
    return survey_move(root, asked, StoreSettings())


def of_kind(rows: Iterable[MoveRow], kind: str) -> MoveRow:
    found = [row for row in rows if row.kind == kind]
    assert len(found) == 1, rows
    return found[0]


@pytest.mark.parametrize("target", [ORBITLOG, JAVA])
def test_sound_store_moves_freely(root: Path, target: str) -> None:
    assert is_free(moved(root, target))


def test_store_in_use_is_refused(root: Path) -> None:
    lock = RealDisk().lock_file(root / tree.LOCK, tree.LOCK_CONTENT)
    try:
        for target in (ORBITLOG, JAVA):
            row = of_kind(moved(root, target), "in use")
            assert row.severity.value == "refused"
            assert "in use by process" in row.sentence
    finally:
        lock.release()


def test_dispatch_lease_that_is_held_is_reported(root: Path) -> None:
    lock = RealDisk().lock_file(root / LEASE_LOCK_FILE, b"dispatch")
    try:
        assert of_kind(moved(root, JAVA), "dispatch lease").severity.value == "changes"
        assert of_kind(moved(root, ORBITLOG), "dispatch lease").severity.value == "note"
    finally:
        lock.release()


def test_unclean_stop_of_orbitlog_changes_a_move_to_java(root: Path) -> None:
    put(root / "abort", b"")
    row = of_kind(moved(root, JAVA), "unclean stop")
    assert row.severity.value == "changes"
    assert "start Orbitlog on the store once" in (row.next_step or "")
    assert of_kind(moved(root, ORBITLOG), "unclean stop").severity.value == "note"


def test_unclean_stop_of_java_is_a_note(root: Path) -> None:
    put(root / "abort", b"")
    (root / "orbitlog.state").unlink()
    assert of_kind(moved(root, JAVA), "unclean stop").severity.value == "note"


@pytest.mark.parametrize("is_lmq", ["true", "false"])
def test_offsets_in_the_table_that_java_does_not_read_are_reported(root: Path, is_lmq: str) -> None:
    if is_lmq == "false":
        (root / "config/consumerOffset.json").rename(root / "config/lmqConsumerOffset.json")
    row = of_kind(moved(root, JAVA, {**SIZES, "enableLmq": is_lmq}), "consumer offsets")
    assert row.severity.value == "changes"
    assert "groups would start over" in row.sentence


def test_missing_offsets_of_groups_are_reported(root: Path) -> None:
    topics = json.dumps({"topicConfigTable": {name: {"topicName": name} for name in ("T", "%RETRY%g")}})
    put(root / "config/topics.json", topics.encode())
    (root / "config/consumerOffset.json").unlink()
    assert "they start over" in of_kind(moved(root, ORBITLOG), "consumer offsets").sentence


@pytest.mark.parametrize("is_missing", [True, False])
def test_topics_without_table_entry_are_reported(root: Path, is_missing: bool) -> None:
    if is_missing:
        (root / "config/topics.json").unlink()
    else:
        put(root / "config/topics.json", b'{"topicConfigTable":{"Other":{"topicName":"Other"}}}')
    row = of_kind(moved(root, ORBITLOG), "topic table")
    assert row.severity.value == "changes"
    assert ("is missing or unreadable" in row.sentence) == is_missing


def test_extension_queues_are_reported(root: Path) -> None:
    put(root / "consumequeue_ext/T/0/00000000000000000000", b"\1" * 64)
    assert of_kind(moved(root, ORBITLOG), "extension queues").severity.value == "changes"


def test_access_control_data_is_reported(root: Path) -> None:
    put(root / "config/users/CURRENT", b"x")
    assert of_kind(moved(root, ORBITLOG), "access control").severity.value == "note"


def test_damage_is_reported_with_the_first_problem(root: Path) -> None:
    with (root / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(150)
        file.write(b"\xff" * 8)
    row = of_kind(moved(root, JAVA), "doctor check")
    assert row.severity.value == "changes"
    assert ", see `orbitlog doctor check" in row.sentence
    assert not [row for row in moved(root, JAVA, is_quick=True) if row.kind == "doctor check"]


def test_quick_states_that_the_log_was_not_read(root: Path) -> None:
    assert of_kind(moved(root, ORBITLOG, is_quick=True), "log not read").severity.value == "note"


def test_java_is_given_the_sizes_of_the_files(root: Path) -> None:
    rows = [row for row in moved(root, JAVA, {"brokerName": "a", "maxIndexNum": "30"}) if row.kind == "file size"]
    assert {(row.setting, row.severity.value) for row in rows} == {
        ("mappedFileSizeCommitLog", "refused"),
        ("mappedFileSizeConsumeQueue", "refused"),
        ("maxHashSlotNum", "changes"),
    }


def test_queue_files_of_a_batch_topic_stop_java(root: Path) -> None:
    put(
        root / "config/topics.json",
        b'{"topicConfigTable":{"T":{"topicName":"T","attributes":{"queue.type":"BatchCQ"}}}}',
    )
    assert of_kind(moved(root, JAVA), "queue type").severity.value == "refused"


def test_retry_topics_of_the_second_form_need_a_setting_of_java(root: Path) -> None:
    with MessageStore.open(root, CONFIG, lambda: STORED_MS) as store:
        store.append(make_message("%RETRY%g+T", b"x"))
    row = of_kind(moved(root, JAVA), "POP retry topics")
    assert row.next_step == "add enableRetryTopicV2=true to broker.conf"
    with_it = moved(root, JAVA, {**SIZES, "enableRetryTopicV2": "true"})
    assert not [row for row in with_it if row.kind == "POP retry topics"]


def test_records_without_property_crc_are_deleted_by_java_that_verifies_it(root: Path) -> None:
    row = of_kind(moved(root, JAVA, {**SIZES, "forceVerifyPropCRC": "true"}), "property CRC")
    assert "physical offset" in row.sentence
    assert row.severity.value == "changes"


def test_settings_that_java_does_not_read_are_reported(root: Path) -> None:
    texts = {**SIZES, "dispatchEngine": "spark", "enableRetryTopicV2": "false", "storeType": "defaultRocksDB"}
    by_setting = {row.setting: row for row in moved(root, JAVA, texts, java_version="5.5")}
    assert by_setting["dispatchEngine"].severity.value == "note"
    assert by_setting["storeType"].severity.value == "changes"
    old = {row.setting: row for row in moved(root, JAVA, texts, java_version="4.9")}
    assert "Java 4.9 does not have this key" in old["enableRetryTopicV2"].sentence


def test_defaults_that_differ_are_reported(root: Path) -> None:
    sizes = {key: text for key, text in SIZES.items() if key.startswith(("mapped", "max"))}
    by_setting = {row.setting: row.severity.value for row in moved(root, JAVA, sizes)}
    assert by_setting["brokerName"] == by_setting["bindAddress"] == "changes"
    assert by_setting["timerMaxDelaySec"] == by_setting["recallMessageEnable"] == "note"


def test_directory_that_is_no_store_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "x", b"x")
    for target in (ORBITLOG, JAVA):
        assert of_kind(moved(tmp_path, target), "store").severity.value == "refused"


def test_row_names_its_subject_once() -> None:
    assert str(refused("store", "/x is broken", path="/x", next_step="mount it")) == (
        "refused: store: /x is broken. Next: mount it."
    )
    assert str(refused("file", "is broken.", path="/x")) == "refused: file: /x: is broken."
