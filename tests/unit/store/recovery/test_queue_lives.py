"""Lives of queues: which records belong to a queue now, and which queues were deleted."""

from __future__ import annotations

import pytest

from orbitlog.store.recovery.queue_lives import (
    DeletionEvidence,
    Queue,
    QueueLife,
    UnitRun,
    deleted_queues,
    is_complete,
    last_life,
)

LOG_END = 10_000


def runs_of(*offsets: int) -> list[UnitRun]:
    """Return the runs of records with these queue offsets, 100 bytes apart."""
    runs: list[UnitRun] = []
    for number, offset in enumerate(offsets):
        if runs and runs[-1].next_offset == offset:
            runs[-1].unit_count += 1
            runs[-1].ends_at = number * 100
        else:
            runs.append(UnitRun(offset, 1, number * 100, number * 100))
    return runs


@pytest.mark.parametrize(
    ("offsets", "unit_zero", "begins_at"),
    [
        ([0, 1, 2], None, 0),
        ([5, 6, 7], None, 0),
        ([0, 1, 2, 0, 1], None, 300),
        ([0, 1, 2, 0, 1], 0, 300),  # files of the life before came back
        ([0, 1, 2, 0, 1, 0, 1, 2, 3], None, 500),
        ([7, 8, 0, 1], None, 200),
        ([0, 1, 2, 0], None, 300),
        ([0, 1, 2, 0], 300, 300),
        ([0, 1, 2, 0], 0, 0),  # the files have the first message of the life before: its queue offset is damaged
        ([0, 1, 2, 0, 3, 4], None, 0),
        ([0, 1, 2, 0, 4, 5], None, 0),
        ([0, 0, 0], None, 200),
        ([0, 1, 5, 0, 1, 7], None, 300),  # gaps are damage inside a life
        ([0, 1, 2, 1, 2], None, 0),  # reused offsets, not a life
    ],
)
def test_last_life_begins_where_offsets_restart_at_zero(
    offsets: list[int], unit_zero: int | None, begins_at: int
) -> None:
    life = last_life(runs_of(*offsets), unit_zero=unit_zero, log_start=0)
    assert life.begins_at == begins_at
    assert life.replaced_at == (begins_at - 100 if begins_at else None)


def test_last_life_with_units_of_expired_records_is_not_replaced_by_one_record() -> None:
    assert last_life(runs_of(7, 8, 0), unit_zero=50, log_start=1000).begins_at == 0
    assert last_life(runs_of(7, 8, 0), unit_zero=200, log_start=0).begins_at == 200


def life(begins_at: int, ends_at: int, replaced_at: int | None = None) -> QueueLife:
    return QueueLife([UnitRun(0, 3, begins_at, ends_at)], replaced_at)


@pytest.mark.parametrize(
    ("topic", "topics", "before", "is_deleted"),
    [
        ("Gone", {"Kept"}, LOG_END, True),
        ("Gone", {"Kept", "Gone"}, LOG_END, False),
        ("Gone", None, LOG_END, False),
        ("Gone", set(), LOG_END, False),
        ("Gone", {"Kept"}, 0, False),
        ("Gone", {"Kept"}, 250, False),  # its last record may never have been dispatched
        ("%RETRY%gone", {"Kept"}, LOG_END, True),
        ("SCHEDULE_TOPIC_XXXX", {"Kept"}, LOG_END, False),
        ("rmq_sys_wheel_timer", {"Kept"}, LOG_END, False),
        ("%LMQ%light", {"Kept"}, LOG_END, False),
    ],
)
def test_deleted_queues_are_those_of_unknown_topics_without_files(
    topic: str, topics: set[str] | None, before: int, is_deleted: bool
) -> None:
    lives = {("Kept", 0): life(0, 100), (topic, 0): life(200, 300)}
    found = deleted_queues(lives, DeletionEvidence(topics, {("Kept", 0)}, before))
    assert found == ({(topic, 0)} if is_deleted else set())


@pytest.mark.parametrize(("recreated_before", "is_deleted"), [(0, False), (300, False), (301, True)])
def test_deleted_queues_include_those_of_topics_created_again_since(recreated_before: int, is_deleted: bool) -> None:
    lives = {("Kept", 0): life(0, 100), ("T", 0): life(200, 300)}
    evidence = DeletionEvidence({"Kept", "T"}, {("Kept", 0)}, LOG_END, recreated_before)
    assert deleted_queues(lives, evidence) == ({("T", 0)} if is_deleted else set())


def test_deleted_queues_of_an_unknown_topic_with_files_are_none() -> None:
    lives = {("T", 0): life(0, 100), ("T", 1): life(200, 300)}
    assert not deleted_queues(lives, DeletionEvidence({"Kept"}, {("T", 0)}, LOG_END))


@pytest.mark.parametrize(
    ("queue_life", "has_files", "before", "is_deleted"),
    [
        (life(0, 100), True, LOG_END, True),
        (life(0, 100), False, 0, True),  # began before the other queue's last deleted message
        (life(250, 350), True, LOG_END, True),  # after it, but a dispatched queue has files
        (life(250, 350), True, 0, False),
        (life(250, 350), False, LOG_END, False),
        (life(0, 900), True, LOG_END, False),  # continued after the other queue began again
        (life(600, 700), True, LOG_END, False),
    ],
)
def test_deleted_queues_include_those_that_another_queue_of_the_topic_outlived(
    queue_life: QueueLife, has_files: bool, before: int, is_deleted: bool
) -> None:
    lives: dict[Queue, QueueLife] = {("T", 0): life(500, 800, replaced_at=200), ("T", 1): queue_life}
    files = {("T", 0)} if has_files else {("Other", 0)}
    found = deleted_queues(lives, DeletionEvidence({"T"}, files, before))
    assert found == ({("T", 1)} if is_deleted else set())


def test_queues_without_any_file_are_complete_only_if_every_topic_was_deleted() -> None:
    lives = {("Gone", 0): life(0, 100)}
    assert is_complete(lives, {"Kept"}, ())
    assert not is_complete(lives, {"Kept", "Gone"}, ())
    assert not is_complete(lives, None, ())
    assert not is_complete(lives | {("SCHEDULE_TOPIC_XXXX", 2): life(0, 1)}, {"Kept"}, ())
    assert is_complete(lives, None, {("Kept", 0)})
