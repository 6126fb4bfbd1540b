"""Backpressure of one connection: stops reading while the peer, or this process, cannot keep up.

A connection pauses reading while its peer does not read responses, while too many of its requests are in flight, and
while there is no room in the memory budget. TCP then slows the peer down. What has been read
already waits in the backlog of `IncomingRequests`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitlog.remoting.flow import Flow

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection


class Backpressure:
    """Paused directions of one connection."""

    def __init__(self, connection: Connection, flow: Flow) -> None:
        self._connection = connection
        self._flow = flow
        self._write_buffer_drained = asyncio.Event()
        self.is_reading_paused = False
        self.is_writing_paused = False
        self._paused_at = 0.0

    def lose_connection(self, lost: Connection) -> None:
        """Refer to a stand-in from now on: the connection has ended."""
        self._connection = lost

    def pause_reading(self, transport: asyncio.Transport | None) -> None:
        """Stop reading from the socket until `resume_reading`."""
        if self.is_reading_paused or transport is None or transport.is_closing():
            return
        self.is_reading_paused = True
        self._flow.paused(self._connection)
        transport.pause_reading()

    def resume_reading(self, transport: asyncio.Transport) -> None:
        """Read from the socket again."""
        self.is_reading_paused = False
        self._flow.resumed(self._connection)
        if not transport.is_closing():
            transport.resume_reading()

    def pause_writing(self, now: float) -> None:
        """Note that the write buffer is full, at the event loop's time `now`."""
        self.is_writing_paused = True
        self._paused_at = now

    def resume_writing(self, now: float) -> None:
        """Note that the write buffer has room, and wake the callers of `wait_until_drained`."""
        self.is_writing_paused = False
        if now - self._paused_at > self._flow.limits.slow_seconds:
            from orbitlog.remoting.slow_requests import report_write  # most servers never need it

            report_write(self._connection, now - self._paused_at)
        self._write_buffer_drained.set()

    async def wait_until_drained(self) -> None:
        """Return when the write buffer has room or the connection is closed."""
        self._write_buffer_drained.clear()
        while self.is_writing_paused and not self._connection.is_closed:
            await self._write_buffer_drained.wait()

    def close(self) -> None:
        """Wake waiting callers, which then see that the connection is closed."""
        self._write_buffer_drained.set()
