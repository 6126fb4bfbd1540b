"""Flow: limits of one server or client, and the bytes that the requests of all its connections hold."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.formats.java import INT_MAX
from orbitlog.settings.limits import (
    CONNECTION_BUFFER_BYTES,
    CONNECTIONS_PER_ADDRESS,
    DESCRIPTOR_RESERVE,
    Limits,
)
from orbitlog.wire.command_decoding import WireLimits

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection

log = logging.getLogger(__name__)

# Frames are joined into one write up to this number; one larger than this is written at once, without a copy.
FRAMES_PER_WRITE = 64
LARGE_FRAME_BYTES = 64 * 1024


class RemotingLimits(NamedTuple):
    """Limits of a server or client.

    A Java consumer has one pull per queue in flight, hundreds of them on one connection; they count as unanswered.
    """

    wire: WireLimits = WireLimits()
    connections: int = 20_000
    per_address: int = INT_MAX
    descriptors: int = INT_MAX
    """The first file descriptor number that is too high for a connection."""
    unanswered_per_connection: int = 16_384
    working_bytes: int = 256 * 1024 * 1024
    working_share: int = 1
    """A connection may have this part of `working_bytes` in its requests before it is paused alone."""
    unfinished_bytes: int = 256 * 1024 * 1024
    buffer_bytes: int = 256 * 1024 * 1024
    """Of unfinished frames and unsent responses of all connections together."""
    write_buffer_bytes: int = 1024 * 1024
    idle_seconds: float = 120.0
    first_frame_seconds: float = math.inf
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
        self.of_addresses: Counter[str] = Counter()
        """Open connections by client address."""
        self._paused: set[Connection] = set()
        self._slow = 0  # connections that became slow since all buffers were looked at
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

    def opened(self, connection: Connection) -> bool:
        """Add a connection; return False if it is one too many of its address, or of all descriptors."""
        self.connections.add(connection)
        self._quiet.clear()
        address, limits = connection.remote_address[0], self.limits
        self.of_addresses[address] += 1
        if self.of_addresses[address] > limits.per_address:
            self.counters.reach(CONNECTIONS_PER_ADDRESS)
            return False
        if connection.descriptor >= limits.descriptors:
            self.counters.reach(DESCRIPTOR_RESERVE)
            return False
        return True

    def closed(self, connection: Connection, working_bytes: int) -> None:
        """Remove a connection and the bytes of its requests in flight."""
        self.connections.discard(connection)
        address = connection.remote_address[0]
        self.of_addresses[address] -= 1
        if not self.of_addresses[address]:
            del self.of_addresses[address]
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

    @property
    def paused_connections(self) -> list[Connection]:
        """Connections that are not read from, so that the event loop does not notice their end."""
        return list(self._paused)

    def note_slow(self) -> None:
        """Count a connection whose write buffer is full; look at all buffers when such ones could exceed the limit."""
        self._slow += 1
        if self._slow * self.limits.write_buffer_bytes > self.limits.buffer_bytes // 2:
            self._slow = 0
            self.shed_buffers()

    def shed_buffers(self) -> None:
        """Close the connections with the largest buffers if those of all connections exceed the limit.

        Connections of the client address with most bytes go first: many small buffers are as much as a few large ones.
        """
        sizes = {connection: connection.buffered_bytes for connection in self.connections}
        total = sum(sizes.values())
        if total <= self.limits.buffer_bytes:
            return
        of_addresses: Counter[str] = Counter()
        for connection, size in sizes.items():
            of_addresses[connection.remote_address[0]] += size
        order = sorted(sizes, key=lambda each: (of_addresses[each.remote_address[0]], sizes[each]), reverse=True)
        for connection in order:
            if total <= self.limits.buffer_bytes * 3 // 4:
                break
            total -= sizes[connection]
            self.counters.reach(CONNECTION_BUFFER_BYTES)
            if self.refused.is_worth_a_line():
                log.warning("closing %s: %d bytes buffered, and too many in all", connection.peer, sizes[connection])
            connection.abort()

    def paused(self, connection: Connection) -> None:
        self._paused.add(connection)

    def resumed(self, connection: Connection) -> None:
        self._paused.discard(connection)
