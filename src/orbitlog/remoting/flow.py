"""Flow: limits of one server or client, and the bytes that the requests of all its connections hold."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.settings.limits import Limits
from orbitlog.wire.command_decoding import WireLimits

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection

# Frames are joined into one write up to this number; one larger than this is written at once, without a copy.
FRAMES_PER_WRITE = 64
LARGE_FRAME_BYTES = 64 * 1024


class RemotingLimits(NamedTuple):
    """Limits of a server or client.

    A Java consumer has one pull per queue in flight, hundreds of them on one connection; they count as unanswered.
    """

    wire: WireLimits = WireLimits()
    connections: int = 20_000
    unanswered_per_connection: int = 16_384
    working_bytes: int = 256 * 1024 * 1024
    unfinished_bytes: int = 256 * 1024 * 1024
    write_buffer_bytes: int = 1024 * 1024
    idle_seconds: float = 120.0
    half_closed_seconds: float = 0.5


class Repeated:
    """Counts an event that a hostile peer can repeat without limit, and selects the occurrences to log."""

    def __init__(self) -> None:
        self.count = 0

    def is_worth_a_line(self) -> bool:
        """Count one more occurrence; return True for the first ten, then whenever the count is a power of two."""
        self.count += 1
        return self.count <= 10 or self.count & (self.count - 1) == 0


class Flow:
    """Counts the bytes of requests in flight on all connections, and resumes those that were paused."""

    def __init__(self, limits: RemotingLimits, counters: Limits | None = None) -> None:
        self.limits = limits
        self.counters = counters or Limits()
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.working_bytes = 0
        self.unfinished_bytes = 0  # of frames that have been received in part
        self.is_full = False
        self.garbage = Repeated()
        self.refused = Repeated()
        self._paused: set[Connection] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def add(self, size: int) -> None:
        """Count the bytes of a request; all connections pause when the limit is exceeded."""
        self.working_bytes += size
        if self.working_bytes > self.limits.working_bytes:
            self.is_full = True

    def remove(self, size: int) -> None:
        """Count the bytes of an answered request; resume paused connections at three quarters of the limit.

        Resuming at the limit itself would pause and resume every connection for each request.
        """
        self.working_bytes -= size
        if self.is_full and self.working_bytes <= self.limits.working_bytes * 3 // 4:
            self.is_full = False
            for connection in list(self._paused):
                connection.resume()

    def start(self, task: asyncio.Task[None]) -> None:
        """Keep a reference to a request's task until it is done: the event loop keeps only a weak one."""
        self.tasks.add(task)
        self._quiet.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._check_quiet()

    def _check_quiet(self) -> None:
        if not (self.connections or self.tasks):
            self._quiet.set()

    async def wait_quiet(self) -> None:
        """Return when no connection is open and no request's task runs."""
        await self._quiet.wait()

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._quiet.clear()

    def closed(self, connection: Connection, working_bytes: int) -> None:
        """Remove a connection and the bytes of its requests in flight."""
        self.connections.discard(connection)
        self._paused.discard(connection)
        self.remove(working_bytes)
        self._check_quiet()

    async def cut_off(self) -> None:
        """Close every connection now and cancel every task; return when all have ended."""
        for connection in list(self.connections):
            connection.abort()
        for task in list(self.tasks):
            task.cancel()
        await self.wait_quiet()

    def paused(self, connection: Connection) -> None:
        self._paused.add(connection)

    def resumed(self, connection: Connection) -> None:
        self._paused.discard(connection)
