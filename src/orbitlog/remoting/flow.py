"""What one server, or one client, allows its connections, and the bytes that all of them have in the works."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.wire.command_decoding import WireLimits

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection


class RemotingLimits(NamedTuple):
    """Limits of a server or client.

    A Java consumer holds one pull a queue, hundreds of them on one connection, and they count as unanswered.
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
    """Something that a hostile peer can make happen as often as it likes, so that not each time is worth a line."""

    def __init__(self) -> None:
        self.count = 0

    def is_worth_a_line(self) -> bool:
        """Count one more; true for the first ten, then each time that the number has doubled."""
        self.count += 1
        return self.count <= 10 or self.count & (self.count - 1) == 0


class Flow:
    """Counts what all connections have in the works, and wakes those that had to wait."""

    def __init__(self, limits: RemotingLimits) -> None:
        self.limits = limits
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.working_bytes = 0
        self.unfinished_bytes = 0  # of frames of which a part came
        self.is_full = False
        self.garbage = Repeated()
        self.refused = Repeated()
        self._paused: set[Connection] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def add(self, size: int) -> None:
        self.working_bytes += size
        if self.working_bytes > self.limits.working_bytes:
            self.is_full = True

    def remove(self, size: int) -> None:
        self.working_bytes -= size
        if self.is_full and self.working_bytes <= self.limits.working_bytes * 3 // 4:
            self.is_full = False
            for connection in list(self._paused):
                connection.go_on()

    def start(self, task: asyncio.Task[None]) -> None:
        """Keep the task of a request until it is done: nobody else does."""
        self.tasks.add(task)
        self._quiet.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._look_if_quiet()

    def _look_if_quiet(self) -> None:
        if not (self.connections or self.tasks):
            self._quiet.set()

    async def wait_quiet(self) -> None:
        """Return when no connection is open and no request is in the works."""
        await self._quiet.wait()

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._quiet.clear()

    def closed(self, connection: Connection, working_bytes: int) -> None:
        self.connections.discard(connection)
        self._paused.discard(connection)
        self.remove(working_bytes)
        self._look_if_quiet()

    async def cut_off(self) -> None:
        """Close every connection now and end every task; returns when all are gone."""
        for connection in list(self.connections):
            connection.abort()
        for task in list(self.tasks):
            task.cancel()
        await self.wait_quiet()

    def paused(self, connection: Connection) -> None:
        self._paused.add(connection)

    def resumed(self, connection: Connection) -> None:
        self._paused.discard(connection)
