"""When the log goes to the disk, and that one trip serves many."""

from __future__ import annotations

import threading

import pytest

from orbitlog.errors import StoreError
from orbitlog.store.flushing import LOG_RULE, QUEUE_RULE, FlushRule, GroupCommit


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
def test_pages_are_counted_as_java_does(written_to: int, flushed_to: int, since_flush_ms: int, is_due: bool) -> None:
    due = LOG_RULE.is_due(written_to=written_to, flushed_to=flushed_to, since_flush_ms=since_flush_ms)
    assert due is is_due


def test_javas_intervals() -> None:
    assert FlushRule(500, 4, 10_000) == LOG_RULE
    assert FlushRule(1_000, 2, 60_000) == QUEUE_RULE


class SlowLog:
    """A log whose flush waits until it is told to go on."""

    def __init__(self) -> None:
        self.written_to = self.flushed_to = self.flushes = 0
        self.started, self.go_on = threading.Event(), threading.Event()

    def flush(self) -> int:
        target = self.written_to
        self.flushes += 1
        self.started.set()
        assert self.go_on.wait(10)
        self.flushed_to = target
        return target


def test_those_who_wait_meanwhile_share_the_next_trip() -> None:
    log = SlowLog()
    group = GroupCommit(log.flush, lambda: log.flushed_to)
    log.written_to = 10
    done: list[bool] = []
    first = threading.Thread(target=lambda: done.append(group.wait(10, 5_000)))
    first.start()
    assert log.started.wait(10)
    log.written_to = 100
    others = [
        threading.Thread(target=lambda end=end: done.append(group.wait(end, 5_000))) for end in range(20, 101, 10)
    ]
    for other in others:
        other.start()
    log.go_on.set()
    for thread in (first, *others):
        thread.join(10)
    assert done == [True] * 10
    assert log.flushes == 2


def test_waiting_has_an_end() -> None:
    log = SlowLog()
    group = GroupCommit(log.flush, lambda: log.flushed_to)
    log.written_to = 10
    first = threading.Thread(target=lambda: group.wait(10, 5_000))
    first.start()
    assert log.started.wait(10)
    assert group.wait(10, 20) is False
    log.go_on.set()
    first.join(10)
    assert group.wait(10, 0) is True


def test_a_failing_disk_fails_every_waiter() -> None:
    def fail() -> int:
        raise StoreError("the disk failed")

    group = GroupCommit(fail, lambda: 0)
    for _ in range(2):
        with pytest.raises(StoreError, match="failed"):
            group.wait(1, 1_000)
