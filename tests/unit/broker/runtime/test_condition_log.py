"""Condition log: one line when a condition begins, one when it ends."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.condition_log import ConditionLog
from orbitlog.settings.limits import TOPICS, Limits
from orbitlog.store.availability import Availability


class Watched:
    """A broker's state as far as conditions depend on it."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.availability = Availability(Path())
        self.limits = Limits()
        state = SimpleNamespace(
            store=SimpleNamespace(availability=self.availability), limits=self.limits, now_ms=lambda: self.now_ms
        )
        self.conditions = ConditionLog(cast(BrokerState, state))


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_full_disk_logged_when_it_begins_and_when_it_ends(lines: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for reason in ("", "90 % used", "91 % used", "", ""):
        watched.availability.note_full_disk(reason)
        watched.conditions.check()
    assert [record.message for record in lines.records] == [
        "disk full: sends are refused: 90 % used",
        "disk full: ended, sends are accepted",
    ]


def test_failed_sync_logged_once(lines: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.availability.fail(OSError("no space"))
    for _ in range(3):
        watched.conditions.check()
    [record] = lines.records
    assert record.message.startswith("read-only: sends are refused: sync failed (no space)")


def test_limit_logged_when_reached_and_after_a_quiet_minute(lines: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for now_ms, events in ((0, 0), (1_000, 3), (2_000, 5), (50_000, 1), (109_999, 0), (110_000, 0), (111_000, 1)):
        watched.now_ms = now_ms
        for _ in range(events):
            watched.limits.reach(TOPICS)
        watched.conditions.check()
    assert [record.message for record in lines.records] == [
        "limit reached: topicsMax, 3 times since the start",
        "limit no longer reached: topicsMax, 9 times in all",
        "limit reached: topicsMax, 10 times since the start",
    ]
