"""Conditions: one line when a condition begins, one when it ends, and a table for pages and metrics."""

from __future__ import annotations

import logging

import pytest

from orbitlog.observe import conditions as kinds
from orbitlog.observe.condition_pages import condition_families, condition_rows
from orbitlog.observe.conditions import SUBJECTS_MAX, Conditions


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_condition_logged_once_when_it_begins_and_once_when_it_ends(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    conditions = Conditions(clock)
    changes = []
    for seconds, reason in ((0, ""), (1, "90 % used"), (2, "91 % used"), (12.5, ""), (13, "")):
        clock.now_s = 1000 + seconds
        changes.append(conditions.set(kinds.DISK_FULL, reason))
    assert changes == [False, True, False, True, False]
    assert [record.message for record in lines.records] == [
        "disk full: sends are refused: 90 % used",
        "disk full: ended after 11.5 s, sends are accepted",
    ]
    begin, end = lines.records
    assert (begin.levelno, begin.event, begin.fields) == (logging.ERROR, "disk_full", {"state": "begin"})
    assert (end.event, end.fields) == ("disk_full", {"state": "end", "duration_ms": 11500})


def test_subjects_of_a_condition_are_independent(lines: pytest.LogCaptureFixture) -> None:
    conditions = Conditions()
    for address in ("a:1", "b:1", "a:1"):
        conditions.set(kinds.NAME_SERVER_LOST, "refused", address)
    conditions.set(kinds.NAME_SERVER_LOST, "", "a:1")
    assert [(active.condition, active.subject) for active in conditions] == [(kinds.NAME_SERVER_LOST, "b:1")]
    assert len(lines.records) == 3 and conditions.began["name_server_lost"] == 2


def test_pages_show_conditions_without_reasons_and_private_subjects() -> None:
    conditions = Conditions(Clock())
    conditions.set(kinds.QUOTA_REACHED, "3 times", "alice")
    conditions.set(kinds.LIMIT_REACHED, "text of a client", "topicsMax")
    assert condition_rows(conditions) == [
        {"condition": "quota_reached", "subject": "", "since": "1970-01-01T00:16:40Z"},
        {"condition": "limit_reached", "subject": "topicsMax", "since": "1970-01-01T00:16:40Z"},
    ]
    active, began = condition_families(conditions)
    assert [row.labels for row in active.rows] == [
        'condition="quota_reached",subject=""',
        'condition="limit_reached",subject="topicsMax"',
    ]
    assert {row.labels: row.value for row in began.rows}['condition="quota_reached"'] == 1
    assert len(began.rows) == len(kinds.ALL)


def test_number_of_kept_subjects_is_limited() -> None:
    conditions = Conditions()
    for number in range(SUBJECTS_MAX + 5):
        conditions.set(kinds.BROKER_LOST, "closed", str(number))
    assert len(list(conditions)) == SUBJECTS_MAX


def test_subjects_that_do_not_come_back_expire(lines: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    conditions = Conditions(clock)
    conditions.set(kinds.BROKER_LOST, "closed", "a:1")
    clock.now_s += 100
    conditions.set(kinds.BROKER_LOST, "closed", "b:1")
    conditions.expire(kinds.BROKER_LOST, 100)
    assert [active.subject for active in conditions] == ["b:1"]
    assert lines.records[-1].message.endswith("no longer expected")
