"""When the log is flushed, and that one flush covers many appends."""

from __future__ import annotations

import queue
import threading

import pytest

from orbitlog.broker.runtime.group_commit import LOG_RULE, QUEUE_RULE, FlushRule, GroupCommit
from orbitlog.errors import StoreError


@pytest.mark.parametrize(
    ("written_to", "flushed_to", "since_flush_ms", "is_due"),
    [
        (0, 0, 99_999, False),
        (4095, 0, 9_999, False),
        (4095, 0, 10_000, True),
        (4 * 4096 - 1, 0, 0, False),
        (4 * 4096, 0, 0, True),
        (5 * 4096 - 1, 4095, 0, True),
        (5 * 4096 - 1, 4096, 0, False),
    ],
)
def test_flush_rule_counts_pages_as_java(written_to: int, flushed_to: int, since_flush_ms: int, is_due: bool) -> None:
    due = LOG_RULE.is_due(written_to=written_to, flushed_to=flushed_to, since_flush_ms=since_flush_ms)
    assert due is is_due


def test_flush_rules_have_the_intervals_of_java() -> None:
    assert FlushRule(500, 4, 10_000) == LOG_RULE
    assert FlushRule(1_000, 2, 60_000) == QUEUE_RULE


class SlowLog:
    """A log whose flush waits for a permission, once for each flush."""

    def __init__(self) -> None:
        self.written_to = self.trips = 0
        self.started, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.landed: queue.SimpleQueue[int] = queue.SimpleQueue()

    def flush(self) -> int:
        target = self.written_to
        self.trips += 1
        self.started.release()
        assert self.go_on.acquire(timeout=60)
        return target


def never(error: StoreError) -> None:
    raise AssertionError(error)


def test_append_during_a_flush_is_covered_by_the_next_one() -> None:
    log = SlowLog()
    group = GroupCommit(log.flush, log.landed.put, never)
    log.written_to = 10
    group.ask()
    assert log.started.acquire(timeout=60)
    for end in range(20, 101, 10):
        log.written_to = end
        group.ask()
    log.go_on.release()
    assert log.landed.get(timeout=60) == 10
    assert log.started.acquire(timeout=60), "without a second request"
    log.go_on.release()
    assert log.landed.get(timeout=60) == 100
    group.close()
    assert log.trips == 2


def test_close_waits_for_the_last_flush() -> None:
    log = SlowLog()
    group = GroupCommit(log.flush, log.landed.put, never)
    log.written_to = 10
    group.ask()
    assert log.started.acquire(timeout=60)
    log.written_to = 20
    group.ask()
    log.go_on.release(2)
    group.close()
    landed = [log.landed.get_nowait(), log.landed.get_nowait()]
    assert landed == [10, 20]


def test_close_without_a_flush_returns_at_once() -> None:
    GroupCommit(SlowLog().flush, never, never).close()  # type: ignore[arg-type]


def test_failed_flush_is_reported_every_time() -> None:
    def fail() -> int:
        raise StoreError("the disk failed")

    failures: queue.SimpleQueue[StoreError] = queue.SimpleQueue()
    group = GroupCommit(fail, lambda landed: None, failures.put)
    for _ in range(2):
        group.ask()
        assert "failed" in str(failures.get(timeout=60))
    group.close()
