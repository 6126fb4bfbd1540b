"""Outgoing requests of one connection, the client role: opaque numbers, responses by number, timeouts.

Requests of the same turn of the event loop leave in one write. Both ends of a connection may send requests, each with
opaque numbers of its own: the response flag distinguishes the two sequences.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitlog.errors import ConnectionLost, RequestTimeout
from orbitlog.formats.java import INT_MAX
from orbitlog.remoting.flow import FRAMES_PER_WRITE, LARGE_FRAME_BYTES
from orbitlog.wire.command import FLAG_ONEWAY, Command, encode_command

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection


class OutgoingRequests:
    """Requests sent on one connection that have no response yet."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._last_opaque = 0
        self._pending: dict[int, asyncio.Future[Command]] = {}  # by opaque number
        self.unwritten: list[bytes] = []
        """Frames of this turn of the event loop."""

    async def request(self, command: Command, timeout: float) -> Command:  # noqa: ASYNC109 - one timer, no task
        """Send a request and return its response, whatever the code; set `command.opaque`.

        Raise `RequestTimeout` without a response in time, `ConnectionLost` if the connection is or gets closed.
        """
        command.opaque = opaque = self.reserve_opaque()
        return await self.request_frame(opaque, command.code, encode_command(command), timeout)

    async def request_frame(self, opaque: int, code: int, frame: bytes, timeout: float) -> Command:  # noqa: ASYNC109
        """Send an encoded request with a reserved opaque number, as `request` does."""
        timer = self._loop.call_later(timeout, self._time_out, opaque, code, timeout)
        try:
            return await self.send_frame(opaque, frame)
        finally:
            timer.cancel()
            self._pending.pop(opaque, None)

    def request_oneway(self, command: Command) -> None:
        """Send a request without a response; raise `ConnectionLost` if the connection is closed."""
        command.opaque = self.reserve_opaque()
        command.flag |= FLAG_ONEWAY
        self._write(encode_command(command))

    def reserve_opaque(self) -> int:
        """Return the next opaque number; raise `ConnectionLost` if the connection is closed."""
        connection = self._connection
        if connection.is_closing:
            reason = f": {connection.end_reason}" if connection.end_reason else ""
            raise ConnectionLost(f"the connection to {connection.peer} is closed{reason}")
        self._last_opaque = self._last_opaque + 1 if self._last_opaque < INT_MAX else 1
        return self._last_opaque

    def send_frame(self, opaque: int, frame: bytes) -> asyncio.Future[Command]:
        """Send an encoded request with this opaque number; the caller limits the time, by `forget`."""
        self._pending[opaque] = future = self._loop.create_future()
        self._write(frame)
        return future

    @property
    def is_waiting(self) -> bool:
        """Return whether a caller waits for a response."""
        return any(not future.done() for future in self._pending.values())

    def forget(self, opaque: int) -> None:
        """Ignore the response to a request, should it still arrive."""
        self._pending.pop(opaque, None)

    def receive(self, response: Command) -> None:
        """Give a response to the caller that waits for it; ignore it if none does."""
        future = self._pending.pop(response.opaque, None)
        if future is not None and not future.done():
            future.set_result(response)

    def lose_connection(self, lost: Connection) -> None:
        """Refer to a stand-in from now on: the connection has ended."""
        self._connection = lost

    def close(self) -> None:
        """Raise `ConnectionLost` in every caller that waits for a response."""
        reason = self._end_reason()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(
                    ConnectionLost(f"{self._connection.peer} closed the connection before it answered{reason}")
                )

    def _end_reason(self) -> str:
        connection = self._connection
        if connection.end_reason:
            return f": {connection.end_reason}"
        if not connection.has_sent_a_frame and not connection.is_secured:
            return "; if it serves TLS only, connect with TLS"
        return ""

    def _time_out(self, opaque: int, code: int, timeout: float) -> None:
        future = self._pending.pop(opaque, None)
        if future is not None and not future.done():
            peer = self._connection.peer
            future.set_exception(RequestTimeout(f"{peer} did not answer request {code:d} within {timeout:g} s"))

    def _write(self, frame: bytes) -> None:
        """Write at the end of this turn of the event loop: tasks that send in the same turn share one system call."""
        unwritten = self.unwritten
        unwritten.append(frame)
        if len(unwritten) == 1:
            self._loop.call_soon(self._connection.write_frames, unwritten)
        elif len(unwritten) >= FRAMES_PER_WRITE or len(frame) > LARGE_FRAME_BYTES:
            self._connection.write_frames(unwritten)
