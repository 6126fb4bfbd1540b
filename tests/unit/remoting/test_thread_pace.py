"""Thread pace: long work is followed by a rest."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orbitlog.remoting import thread_pace
from orbitlog.remoting.thread_pace import REST_FACTOR, REST_SECONDS_MAX, SHORT_SECONDS, ThreadPace


@pytest.mark.parametrize(
    ("work_s", "rest_s"),
    [(SHORT_SECONDS / 2, 0.0), (2 * SHORT_SECONDS, 2 * SHORT_SECONDS * REST_FACTOR), (60.0, REST_SECONDS_MAX)],
)
def test_rest_follows_long_work(work_s: float, rest_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, worked_s, slept = 100.0, 0.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        slept.append(seconds)
        now_s += seconds

    async def test() -> None:
        pace = ThreadPace(lambda: now_s, lambda: worked_s)
        await pace.rest()
        assert not slept, "before the first work"
        pace.paced(work)(work_s)
        await pace.rest()
        await pace.rest()
        assert slept == ([pytest.approx(rest_s)] if rest_s else [])

    def work(seconds: float) -> None:
        nonlocal worked_s
        worked_s += seconds

    monkeypatch.setattr(thread_pace.asyncio, "sleep", sleep)
    asyncio.run(test())


def test_rests_of_two_works_add_up() -> None:
    worked_s = iter((0.0, 0.02, 0.02, 0.03))
    pace = ThreadPace(lambda: 100.0, lambda: next(worked_s))
    assert pace.paced(lambda: "first")() == "first" and pace.paced(lambda: "second")() == "second"
    assert pace._rests_until_s == pytest.approx(100.0 + 0.03 * REST_FACTOR)


def test_work_that_waits_needs_no_rest() -> None:
    pace = ThreadPace()
    pace.paced(threading.Event().wait)(2 * SHORT_SECONDS)
    assert pace._rests_until_s == 0.0


def test_work_that_fails_is_followed_by_a_rest() -> None:
    worked_s = iter((0.0, 1.0))
    pace = ThreadPace(lambda: 100.0, lambda: next(worked_s))
    with pytest.raises(ZeroDivisionError):
        pace.paced(lambda: 1 / 0)()
    assert pace._rests_until_s == 100.0 + REST_SECONDS_MAX
