"""Flow: limits of one server or client, its open connections, and the tasks of their requests."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.formats.java import INT_MAX
from orbitlog.remoting.loop_slices import MICROS
from orbitlog.remoting.memory_budget import MemoryBudget, MemoryLimits
from orbitlog.settings.limits import CONNECTIONS_PER_ADDRESS, DESCRIPTOR_RESERVE, REQUEST_TURN_MICROS, Limits
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
    memory: MemoryLimits = MemoryLimits()
    write_buffer_bytes: int = 1024 * 1024
    idle_seconds: float = 120.0
    first_frame_seconds: float = math.inf
    half_closed_seconds: float = 0.5
    slow_seconds: float = math.inf
    """Requests that take longer are logged."""
    last_append_ms: Callable[[], int] = int
    """Returns when the log was appended to last, in milliseconds since 1970; 0 for a server without a log."""


class Repeated:
    """Counts an event that a hostile peer can repeat without limit, and selects the occurrences to log."""

    def __init__(self) -> None:
        self.count = 0

    def is_worth_a_line(self) -> bool:
        """Count one more occurrence; return True for the first ten, then whenever the count is a power of two."""
        self.count += 1
        return self.count <= 10 or self.count & (self.count - 1) == 0


class Flow:
    """Connections of a server or client. Several servers may share one memory budget."""

    def __init__(
        self, limits: RemotingLimits, counters: Limits | None = None, memory: MemoryBudget | None = None
    ) -> None:
        self.limits = limits
        self.counters = counters or Limits()
        self.turn_seconds = self.counters[REQUEST_TURN_MICROS] / MICROS
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.memory = memory or MemoryBudget(limits.memory, self.counters)
        self.memory.on_room(self.resume_all)
        self.garbage = Repeated()
        self.refused = Repeated()
        self.of_addresses: Counter[str] = Counter()
        """Open connections by client address."""
        self.has_several_addresses = False
        self._paused: set[Connection] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def resume_all(self) -> None:
        """Let paused connections continue, each if it has room."""
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
        self.memory.connect(connection, connection.memory, address)
        self.of_addresses[address] += 1
        self.has_several_addresses = len(self.of_addresses) > 1
        if self.of_addresses[address] > limits.per_address:
            self.counters.reach(CONNECTIONS_PER_ADDRESS)
            return False
        if connection.descriptor >= limits.descriptors:
            self.counters.reach(DESCRIPTOR_RESERVE)
            return False
        return True

    def closed(self, connection: Connection) -> None:
        """Remove a connection and its bytes."""
        self.connections.discard(connection)
        address = connection.remote_address[0]
        self.of_addresses[address] -= 1
        if not self.of_addresses[address]:
            del self.of_addresses[address]
            self.has_several_addresses = len(self.of_addresses) > 1
        self._paused.discard(connection)
        self.memory.disconnect(connection.memory)
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

    def count_unsent(self) -> None:
        """Count the write buffers of all connections: those that never get full are not counted when they grow."""
        for connection in list(self.connections):
            connection.count_unsent()

    def paused(self, connection: Connection) -> None:
        self._paused.add(connection)

    def resumed(self, connection: Connection) -> None:
        self._paused.discard(connection)
