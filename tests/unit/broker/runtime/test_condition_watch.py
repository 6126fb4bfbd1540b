"""Condition watch: conditions begin and end with the state that they are read from."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.condition_watch import ConditionWatch
from orbitlog.observe.conditions import Conditions
from orbitlog.settings.limits import TOPICS, Limits
from orbitlog.store.availability import Availability

MIB = 1024 * 1024


class Watched:
    """A broker's state as far as conditions depend on it."""

    def __init__(self, **parts: Any) -> None:
        self.now_ms = 0
        self.availability = Availability(Path())
        self.limits = Limits()
        self.store = SimpleNamespace(availability=self.availability, written_to=0, dispatched_to=0, flushed_to=0)
        self.conditions = Conditions(lambda: self.now_ms / 1000)
        state = SimpleNamespace(
            store=self.store, limits=self.limits, now_ms=lambda: self.now_ms, conditions=self.conditions
        )
        self._watch = ConditionWatch(cast(BrokerState, state), **parts)

    def check(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._watch.check()

    @property
    def active(self) -> list[tuple[str, str]]:
        return [(active.condition.name, active.subject) for active in self.conditions]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_full_disk_begins_and_ends() -> None:
    watched = Watched()
    seen = []
    for reason in ("", "90 % used", "91 % used", "", ""):
        watched.availability.note_full_disk(reason)
        watched.check()
        seen.append(watched.active)
    assert seen == [[], [("disk_full", "")], [("disk_full", "")], [], []]


def test_failed_sync_logged_once(lines: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.availability.fail(OSError("no space"))
    for _ in range(3):
        watched.check()
    [record] = lines.records
    assert record.message.startswith("read-only: sends are refused: sync failed (no space)")


def test_limit_logged_when_reached_and_after_a_quiet_minute(lines: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    for now_ms, events in ((0, 0), (1_000, 3), (2_000, 5), (50_000, 1), (109_999, 0), (110_000, 0), (111_000, 1)):
        for _ in range(events):
            watched.limits.reach(TOPICS)
        watched.check(now_ms)
    assert [record.message for record in lines.records] == [
        "limit reached: topicsMax: clients are refused or delayed: 3 times since the start",
        "limit reached: topicsMax: ended after 109.0 s, 9 times in all",
        "limit reached: topicsMax: clients are refused or delayed: 10 times since the start",
    ]


@pytest.mark.parametrize(
    ("field", "name", "begin"), [("dispatched_to", "dispatch_lag", 64 * MIB), ("flushed_to", "flush_lag", 256 * MIB)]
)
def test_lag_begins_at_its_limit_and_ends_well_below(field: str, name: str, begin: int) -> None:
    watched = Watched()
    watched.store.written_to = watched.store.dispatched_to = watched.store.flushed_to = 10 * 256 * MIB
    seen = []
    for lag in (begin, begin + 1, begin // 2, begin // 4):
        setattr(watched.store, field, watched.store.written_to - lag)
        watched.check()
        seen.append((name, "") in watched.active)
    assert seen == [False, True, True, False]


def slave_at(peer: str) -> Any:
    return SimpleNamespace(peer=peer, is_observer=False)


def test_lost_replica_ends_when_it_is_back_from_another_port(lines: pytest.LogCaptureFixture) -> None:
    master = SimpleNamespace(slaves=[], has_enough_slaves=True)
    watched = Watched(master=master)
    both = ["10.0.0.1:5", "10.0.0.1:6"]
    one, back = both[1:], ["10.0.0.1:7", *both]
    for now_ms, slaves in ((0, []), (1_000, both), (31_000, both), (32_000, one), (33_000, one), (34_000, back)):
        master.slaves = [slave_at(peer) for peer in slaves]
        watched.check(now_ms)
    assert [record.message for record in lines.records] == [
        "replica lost: 10.0.0.1: the log has one copy less: 1 of 2 disconnected",
        "replica lost: 10.0.0.1: ended after 2.0 s, the slave follows",
    ]


def test_old_connection_of_a_restarted_slave_is_no_second_slave() -> None:
    master = SimpleNamespace(slaves=[], has_enough_slaves=True)
    watched = Watched(master=master)
    for now_ms, slaves in ((0, ["10.0.0.1:5"]), (1_000, ["10.0.0.1:5", "10.0.0.1:6"]), (21_000, ["10.0.0.1:6"])):
        master.slaves = [slave_at(peer) for peer in slaves]
        watched.check(now_ms)
        assert not watched.active


def test_lost_replica_is_expected_for_an_hour() -> None:
    master = SimpleNamespace(slaves=[slave_at("10.0.0.1:5")], has_enough_slaves=True)
    watched = Watched(master=master)
    watched.check()
    master.slaves = []
    watched.check(1)
    assert watched.active == [("replica_lost", "10.0.0.1")]
    watched.check(3_600_001)
    assert not watched.active


def test_master_that_is_away_for_seconds_is_lost() -> None:
    slave = SimpleNamespace(link=SimpleNamespace(is_connected=True, problem=""))
    watched = Watched(slave=slave)
    watched.check(10_000)
    slave.link = SimpleNamespace(is_connected=False, problem="refused")
    seen = []
    for now_ms in (11_000, 12_999, 13_000):
        watched.check(now_ms)
        seen.append(bool(watched.active))
    assert seen == [False, False, True]
    slave.link = SimpleNamespace(is_connected=True, problem="")
    watched.check(14_000)
    assert not watched.active
