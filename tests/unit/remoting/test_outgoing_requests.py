"""The client role of a connection, without sockets: opaque numbers, shared writes, responses, timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from orbitlog.errors import ConnectionLost, RequestTimeout
from orbitlog.formats.java import INT_MAX
from orbitlog.remoting.connection import Connection
from orbitlog.remoting.flow import FRAMES_PER_WRITE
from orbitlog.remoting.outgoing_requests import OutgoingRequests
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, response_to


class Line:
    """The part of a connection that `OutgoingRequests` uses."""

    peer = "peer:1"
    is_closing = is_secured = False
    has_sent_a_frame = True
    end_reason = ""

    def __init__(self) -> None:
        self.writes: list[list[bytes]] = []

    def write_frames(self, frames: list[bytes]) -> None:
        if frames:
            self.writes.append(frames.copy())
            frames.clear()


def with_requests(test: Callable[[OutgoingRequests, Line], Awaitable[None]]) -> None:
    async def run() -> None:
        line = Line()
        await test(OutgoingRequests(cast(Connection, line), asyncio.get_running_loop()), line)

    asyncio.run(run())


def command() -> Command:
    return Command(RequestCode.HEART_BEAT)


def test_requests_of_one_turn_leave_in_one_write_and_get_their_own_responses() -> None:
    async def test(requests: OutgoingRequests, line: Line) -> None:
        sent = [command() for _ in range(3)]
        pending = [asyncio.ensure_future(requests.request(each, 60.0)) for each in sent]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [len(frames) for frames in line.writes] == [3]
        for number in (2, 0, 1):
            requests.receive(response_to(sent[number], number))
        assert [(await response).code for response in pending] == [0, 1, 2]

    with_requests(test)


def test_many_requests_of_one_turn_are_written_before_it_ends() -> None:
    async def test(requests: OutgoingRequests, line: Line) -> None:
        for _ in range(FRAMES_PER_WRITE):
            requests.request_oneway(command())
        assert [len(frames) for frames in line.writes] == [FRAMES_PER_WRITE]

    with_requests(test)


def test_a_request_without_response_times_out_and_its_late_response_is_ignored() -> None:
    async def test(requests: OutgoingRequests, _: Line) -> None:
        sent = command()
        with pytest.raises(RequestTimeout, match="peer:1 did not answer request 34"):
            await requests.request(sent, 0.0)
        requests.receive(response_to(sent, 0))

    with_requests(test)


def test_a_lost_connection_fails_pending_and_later_requests() -> None:
    async def test(requests: OutgoingRequests, line: Line) -> None:
        pending = asyncio.ensure_future(requests.request(command(), 60.0))
        await asyncio.sleep(0)
        line.is_closing = True
        requests.close()
        with pytest.raises(ConnectionLost, match="before it answered"):
            await pending
        with pytest.raises(ConnectionLost, match="is closed"):
            requests.reserve_opaque()

    with_requests(test)


def test_opaque_numbers_after_the_largest_start_at_one() -> None:
    async def test(requests: OutgoingRequests, _: Line) -> None:
        requests._last_opaque = INT_MAX - 1
        assert [requests.reserve_opaque() for _ in range(3)] == [INT_MAX, 1, 2]

    with_requests(test)
