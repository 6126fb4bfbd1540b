"""Thread pace: long work is followed by a rest."""

from __future__ import annotations

import asyncio

import pytest

from orbitlog.remoting import thread_pace
from orbitlog.remoting.thread_pace import REST_FACTOR, REST_SECONDS_MAX, SHORT_SECONDS, ThreadPace


@pytest.mark.parametrize(
    ("work_s", "rest_s"),
    [(SHORT_SECONDS / 2, 0.0), (2 * SHORT_SECONDS, 2 * SHORT_SECONDS * REST_FACTOR), (60.0, REST_SECONDS_MAX)],
)
def test_rest_follows_long_work(work_s: float, rest_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = 100.0, list[float]()

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        slept.append(seconds)
        now_s += seconds

    async def test() -> None:
        nonlocal now_s
        pace = ThreadPace(lambda: now_s)
        await pace.rest()
        assert not slept, "before the first work"
        with pace.work():
            now_s += work_s
        await pace.rest()
        await pace.rest()
        assert slept == ([pytest.approx(rest_s)] if rest_s else [])

    monkeypatch.setattr(thread_pace.asyncio, "sleep", sleep)
    asyncio.run(test())


def test_work_that_fails_is_followed_by_a_rest() -> None:
    now_s = 100.0
    pace = ThreadPace(lambda: now_s)
    with pytest.raises(ValueError, match="broken"), pace.work():
        now_s += 1.0
        raise ValueError("broken")
    assert pace._rests_until_s == now_s + REST_SECONDS_MAX
