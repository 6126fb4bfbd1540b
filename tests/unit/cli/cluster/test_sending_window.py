"""Sending a stream: how many wait at once, in which order results are reported, and what a failure does."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator

import pytest

from orbitlog.cli.cluster.sending_window import input_lines, send_all


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        yield number


@pytest.mark.parametrize("in_flight", [1, 4, 100])
def test_waiting_is_limited_and_all_are_notified_in_order(in_flight: int) -> None:
    waiting = most = 0
    told: list[int] = []

    async def send(number: int) -> int:
        nonlocal waiting, most
        waiting += 1
        most = max(most, waiting)
        for _ in range(10 - number % 10):  # later ones are done earlier
            await asyncio.sleep(0)
        waiting -= 1
        return number

    assert asyncio.run(send_all(numbers(50), send, told.append, in_flight=in_flight)) == 50
    assert told == list(range(50))
    assert most == min(in_flight, 50)


def test_first_failure_ends_it_after_reporting_what_was_done() -> None:
    told: list[int] = []
    cancelled: list[int] = []

    async def send(number: int) -> int:
        if number == 3:
            raise OSError("no more")
        try:
            await (asyncio.sleep(0) if number < 3 else asyncio.Event().wait())
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    with pytest.raises(OSError, match="no more"):
        asyncio.run(send_all(numbers(10), send, told.append, in_flight=5))
    assert told == [0, 1, 2]
    assert 3 not in cancelled


def test_lines_of_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\r\n\xff\x00\n\nlast")))

    async def read() -> list[bytes]:
        return [line async for line in input_lines()]

    assert asyncio.run(read()) == [b"one", b"\xff\x00", b"", b"last"]
