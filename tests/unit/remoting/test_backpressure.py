"""Backpressure of one connection, without sockets."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

from orbitlog.remoting.backpressure import Backpressure
from orbitlog.remoting.flow import Flow, RemotingLimits


def make_backpressure(flow: Flow) -> Backpressure:
    return Backpressure(Mock(is_closed=False), flow)


def test_reading_is_paused_and_resumed_once() -> None:
    backpressure, transport = make_backpressure(Flow(RemotingLimits())), Mock()
    transport.is_closing.return_value = False
    backpressure.pause_reading(transport)
    backpressure.pause_reading(transport)
    transport.pause_reading.assert_called_once_with()
    backpressure.resume_reading(transport)
    transport.resume_reading.assert_called_once_with()
    assert not backpressure.is_reading_paused


def test_a_closing_transport_is_not_paused() -> None:
    backpressure, transport = make_backpressure(Flow(RemotingLimits())), Mock()
    transport.is_closing.return_value = True
    backpressure.pause_reading(transport)
    transport.pause_reading.assert_not_called()


def test_a_wait_for_the_write_buffer_ends_when_it_drains_or_the_connection_closes() -> None:
    async def test() -> None:
        connection = Mock(is_closed=False)
        backpressure = Backpressure(connection, Flow(RemotingLimits()))
        await backpressure.wait_until_drained()
        backpressure.pause_writing(0.0)
        waiting = asyncio.ensure_future(backpressure.wait_until_drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        backpressure.resume_writing(0.0)
        await waiting
        backpressure.pause_writing(0.0)
        waiting = asyncio.ensure_future(backpressure.wait_until_drained())
        await asyncio.sleep(0)
        connection.is_closed = True
        backpressure.close()
        await waiting

    asyncio.run(test())
