"""Dispatch steps are delayed at a high rate of messages, and run at once at a low one."""

from __future__ import annotations

from orbitlog.broker.runtime.dispatch_pace import GATHER_SECONDS, MANY_PER_SECOND, DispatchPace


def test_pace_delays_steps_at_a_high_rate() -> None:
    pace = DispatchPace()
    assert pace.seconds == 0.0
    now_s, count = 100.0, 0
    pace.note(now_s, count)
    for _ in range(3):
        now_s, count = now_s + 0.01, count + 2 * MANY_PER_SECOND // 100
        pace.note(now_s, count)
        assert pace.seconds == GATHER_SECONDS
    for _ in range(3):
        now_s, count = now_s + 0.01, count + MANY_PER_SECOND // 200
        pace.note(now_s, count)
        assert pace.seconds == 0.0


def test_pace_of_two_messages_at_once_is_zero() -> None:
    pace = DispatchPace()
    pace.note(100.0, 0)
    pace.note(100.0001, 2)
    assert pace.seconds == 0.0
    pace.note(100.0 + 2 * GATHER_SECONDS, 3)
    assert pace.seconds == 0.0
