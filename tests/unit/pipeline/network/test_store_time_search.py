"""Search by store time: the first message at or after a time, for every hint and every kind of broker."""

from __future__ import annotations

import asyncio

import pytest

from orbitlog.pipeline.network.store_time_search import first_at_or_after

TIMES = [10, 10, 20, 20, 20, 30, 50, 50]
EARLIEST = 100
LATEST = EARLIEST + len(TIMES)


def search(time_ms: int, hint: int) -> int:
    async def store_time_at(queue_offset: int) -> int | None:
        assert EARLIEST <= queue_offset < LATEST
        return TIMES[queue_offset - EARLIEST]

    return asyncio.run(first_at_or_after(store_time_at, EARLIEST, LATEST, time_ms, hint))


@pytest.mark.parametrize("time_ms", [0, 10, 11, 20, 21, 30, 31, 50, 51])
def test_offset_is_exact_whatever_the_broker_answers(time_ms: int) -> None:
    expected = next((EARLIEST + place for place, stored in enumerate(TIMES) if stored >= time_ms), LATEST)
    assert {search(time_ms, hint) for hint in range(-1, LATEST + 3)} == {expected}


def test_empty_queue_has_its_end() -> None:
    async def never(_: int) -> int | None:
        raise AssertionError

    assert asyncio.run(first_at_or_after(never, 7, 7, 1, 0)) == 7


def test_good_hint_costs_two_requests() -> None:
    asked: list[int] = []

    async def store_time_at(queue_offset: int) -> int | None:
        asked.append(queue_offset)
        return queue_offset * 10

    assert asyncio.run(first_at_or_after(store_time_at, 0, 1_000_000, 5_000_000, 500_000)) == 500_000
    assert len(asked) == 2
