"""Backpressure of one connection: stops reading while the peer, or this process, cannot keep up.

A connection pauses reading while its peer does not read responses, while too many of its requests are in flight, and
while the requests of all connections hold too many bytes (`Flow`). TCP then slows the peer down. What has been read
already waits in the backlog of `IncomingRequests`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitlog.remoting.flow import Flow

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection

# A connection with less than this of an unfinished frame is not closed: it frees too little to be worth it.
_LARGE_PART_BYTES = 64 * 1024


class Backpressure:
    """Paused directions of one connection and the bytes of its unfinished frame."""

    def __init__(self, connection: Connection, flow: Flow) -> None:
        self._connection = connection
        self._flow = flow
        self.unfinished_bytes = 0
        self._write_buffer_drained = asyncio.Event()
        self.is_reading_paused = False
        self.is_writing_paused = False

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

    def pause_writing(self) -> None:
        """Note that the write buffer is full."""
        self.is_writing_paused = True

    def resume_writing(self) -> None:
        """Note that the write buffer has room, and wake the callers of `wait_until_drained`."""
        self.is_writing_paused = False
        self._write_buffer_drained.set()

    async def wait_until_drained(self) -> None:
        """Return when the write buffer has room or the connection is closed."""
        self._write_buffer_drained.clear()
        while self.is_writing_paused and not self._connection.is_closed:
            await self._write_buffer_drained.wait()

    def count_unfinished(self, size: int) -> bool:
        """Record the bytes of this connection's unfinished frame; return False if it must be closed.

        When all connections together hold too many such bytes, one with a large part gives way: otherwise no
        connection could finish its frame.
        """
        flow = self._flow
        flow.unfinished_bytes += size - self.unfinished_bytes
        self.unfinished_bytes = size
        return flow.unfinished_bytes <= flow.limits.unfinished_bytes or size <= _LARGE_PART_BYTES

    def close(self) -> None:
        """Return the counted bytes and wake waiting callers, which then see that the connection is closed."""
        self._flow.unfinished_bytes -= self.unfinished_bytes
        self.unfinished_bytes = 0
        self._write_buffer_drained.set()
