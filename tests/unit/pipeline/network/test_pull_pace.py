"""Pace of pulls: bytes are spread over time, and idle time is not saved up."""

from __future__ import annotations

import pytest

from orbitlog.pipeline.network.pull_pace import PullPace


def test_without_a_rate_there_is_no_pause() -> None:
    assert PullPace(None).pause(1 << 30, 0.0) == 0.0


def test_concurrent_pulls_share_the_rate() -> None:
    pace = PullPace(1000)
    assert [pace.pause(500, 10.0) for _ in range(3)] == pytest.approx([0.5, 1.0, 1.5])


def test_idle_time_is_not_saved_up() -> None:
    pace = PullPace(1000)
    pace.pause(500, 10.0)
    assert pace.pause(500, 100.0) == pytest.approx(0.5)
