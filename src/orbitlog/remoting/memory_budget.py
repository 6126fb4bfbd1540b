"""Memory budget: bytes that peers make a server keep, with a share for each connection and for each client address.

One budget covers four kinds of bytes:

- work: requests that handlers have not answered yet;
- received: unfinished frames, and frames that wait because the connection is paused; with TLS also unfinished
  handshakes and records;
- unsent: responses that the peer has not read;
- held: long polls.

Work ends by itself, so connections are paused until there is room. A peer decides how long the other kinds stay. If
they take more than half of a limit that is exceeded, the connections with most of them are closed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.settings.limits import MEMORY_BYTES, MEMORY_PER_ADDRESS, MEMORY_PER_CONNECTION, Limits
from orbitlog.settings.setting import Setting

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection

log = logging.getLogger(__name__)

HELD_REQUEST_BYTES = 640
"""Memory of a held request: what the response needs, and its entries in the tables of the broker."""


class MemoryLimits(NamedTuple):
    """Limits of a server or client; the defaults are those of a client, which chooses its peers."""

    total: int = MEMORY_BYTES.default
    per_address: int = MEMORY_BYTES.default
    per_connection: int = MEMORY_BYTES.default


class AddressMemory:
    """Bytes of all connections of one client address."""

    __slots__ = ("bytes", "connection_count", "is_full", "name", "work_per_connection", "working_bytes")

    def __init__(self, name: str, work_per_connection: int) -> None:
        self.name = name
        self.bytes = 0
        self.working_bytes = 0
        self.connection_count = 0
        self.is_full = False
        self.work_per_connection = work_per_connection
        """Bytes of work past which a connection is paused; less while the address is full."""


class ConnectionMemory:
    """Bytes of one connection. Every change is also added to its address and to the budget."""

    __slots__ = (
        *("address", "budget", "connection", "held_bytes", "received_bytes", "tls_bytes", "unsent_bytes"),
        "working_bytes",
    )

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.connection: Connection | None = None
        self.address = AddressMemory("", budget.limits.per_connection)
        self.working_bytes = 0
        self.received_bytes = 0
        self.tls_bytes = 0
        self.unsent_bytes = 0
        self.held_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes that stay as long as the peer decides."""
        return self.received_bytes + self.tls_bytes + self.unsent_bytes + self.held_bytes

    def add_work(self, size: int) -> None:
        """Count a request in work."""
        budget, address = self.budget, self.address
        self.working_bytes += size
        address.working_bytes += size
        budget.working_bytes += size
        address.bytes += size
        budget.bytes += size
        if address.bytes > budget.limits.per_address or budget.bytes > budget.limits.total:
            budget.fill(address)

    def remove_work(self, size: int) -> None:
        """Count the end of a request in work."""
        budget, address = self.budget, self.address
        self.working_bytes -= size
        address.working_bytes -= size
        budget.working_bytes -= size
        address.bytes -= size
        budget.bytes -= size
        if address.is_full or budget.is_full:
            budget.drain(address)

    def count_received(self, size: int) -> None:
        """Set the bytes of an unfinished frame and of frames that wait."""
        growth, self.received_bytes = size - self.received_bytes, size
        self._keep(growth)

    def count_tls(self, size: int) -> None:
        """Set the bytes of an unfinished handshake or record."""
        growth, self.tls_bytes = size - self.tls_bytes, size
        self._keep(growth)

    def count_unsent(self, size: int) -> None:
        """Set the bytes of responses that the peer has not read."""
        growth, self.unsent_bytes = size - self.unsent_bytes, size
        self._keep(growth)

    def add_held(self, count: int) -> None:
        """Count held requests; a negative number of them if they are answered."""
        self.held_bytes += count * HELD_REQUEST_BYTES
        self._keep(count * HELD_REQUEST_BYTES)

    def release_kept(self) -> None:
        """Remove what the peer makes this process keep: the connection ends."""
        size = self.kept_bytes
        self.received_bytes = self.tls_bytes = self.unsent_bytes = self.held_bytes = 0
        self._keep(-size)

    def _keep(self, growth: int) -> None:
        budget, address = self.budget, self.address
        address.bytes += growth
        budget.bytes += growth
        if growth <= 0:
            if address.is_full or budget.is_full:
                budget.drain(address)
        elif self.kept_bytes > budget.limits.per_connection:
            budget.close(self, MEMORY_PER_CONNECTION)
        elif address.bytes > budget.limits.per_address or budget.bytes > budget.limits.total:
            budget.shed()


class MemoryBudget:
    """The budget of one server. `counters` gets each limit that is reached."""

    def __init__(self, limits: MemoryLimits, counters: Limits | None = None) -> None:
        self.limits = limits
        self.bytes = 0
        self.working_bytes = 0
        self.is_full = False
        self._counters = counters or Limits()
        self._addresses: dict[str, AddressMemory] = {}
        self._connections: set[ConnectionMemory] = set()
        self._room_callbacks: list[Callable[[], object]] = []
        self._closed_count = 0

    def on_room(self, callback: Callable[[], object]) -> None:
        """Call back whenever connections that were paused may have room again."""
        self._room_callbacks.append(callback)

    def connect(self, connection: Connection, memory: ConnectionMemory, name: str) -> None:
        """Add a connection of a client address."""
        address = self._addresses.get(name)
        if address is None:
            address = self._addresses[name] = AddressMemory(name, self.limits.per_connection)
        address.connection_count += 1
        memory.address = address
        memory.connection = connection
        self._connections.add(memory)
        self._divide(address)

    def disconnect(self, memory: ConnectionMemory) -> None:
        """Remove a connection and its bytes."""
        address = memory.address
        if memory in self._connections:
            self._connections.remove(memory)
            memory.connection = None
            address.connection_count -= 1
            if not address.connection_count:
                del self._addresses[address.name]
            self._divide(address)
        memory.release_kept()
        memory.remove_work(memory.working_bytes)

    def fill(self, address: AddressMemory) -> None:
        """Pause work: of all connections if the budget is exceeded, of one address if only its share is."""
        if self.bytes > self.limits.total and not self.is_full:
            self.is_full = True
            self._counters.reach(MEMORY_BYTES)
        if address.bytes > self.limits.per_address and not address.is_full:
            address.is_full = True
            self._counters.reach(MEMORY_PER_ADDRESS)
            self._divide(address)

    def drain(self, address: AddressMemory) -> None:
        """Allow work at three quarters of a limit: at the limit itself, each request would pause and resume all.

        Without any work there is always room. Otherwise frames that wait could fill a limit for ever.
        """
        has_room = False
        if self.is_full and (self.bytes <= self.limits.total * 3 // 4 or not self.working_bytes):
            self.is_full, has_room = False, True
        if address.is_full and (address.bytes <= self.limits.per_address * 3 // 4 or not address.working_bytes):
            address.is_full, has_room = False, True
            self._divide(address)
        if has_room:
            for callback in self._room_callbacks:
                callback()

    def note_paused(self, memory: ConnectionMemory) -> None:
        """Count a pause of a connection if its own work is the reason."""
        if memory.working_bytes > memory.address.work_per_connection:
            self._counters.reach(MEMORY_PER_CONNECTION)

    def _divide(self, address: AddressMemory) -> None:
        """Divide the share of a full address between its connections; one with little work is not paused."""
        limits = self.limits
        fair = limits.per_address // max(address.connection_count, 1) if address.is_full else limits.per_connection
        address.work_per_connection = min(fair, limits.per_connection)

    def close(self, memory: ConnectionMemory, limit: Setting[int]) -> None:
        """Close a connection that keeps too much."""
        self._counters.reach(limit)
        connection, kept_bytes = memory.connection, memory.kept_bytes
        memory.release_kept()  # now: the connection ends later, and others would be closed in its place until then
        if connection is None:
            return
        self._closed_count += 1
        if self._closed_count & (self._closed_count - 1) == 0:  # thinned: peers must not fill the log
            log.warning(
                "closing %s: it keeps %d bytes, over %s (%d closed so far)",
                *(connection.peer, kept_bytes, limit.key, self._closed_count),
            )
        connection.abort()

    def shed(self) -> None:
        """Close the connections that keep most, if kept bytes exceed the share of an address or the budget."""
        limits = self.limits
        for address in list(self._addresses.values()):
            if _is_kept_over(address.bytes, address.working_bytes, limits.per_address):
                of_address = [memory for memory in self._connections if memory.address is address]
                self._close_largest(of_address, address.bytes - limits.per_address * 3 // 4, MEMORY_PER_ADDRESS)
        if _is_kept_over(self.bytes, self.working_bytes, limits.total):
            self._close_largest(self._connections, self.bytes - limits.total * 3 // 4, MEMORY_BYTES)

    def _close_largest(self, memories: Iterable[ConnectionMemory], excess_bytes: int, limit: Setting[int]) -> None:
        """Close connections until they have freed `excess_bytes`; those of the address that keeps most first.

        Many connections with small buffers of one address cost as much as a few with large ones.
        """
        keeping = [memory for memory in memories if memory.kept_bytes > 0]
        of_addresses: Counter[str] = Counter()
        for memory in keeping:
            of_addresses[memory.address.name] += memory.kept_bytes
        keeping.sort(key=lambda memory: (of_addresses[memory.address.name], memory.kept_bytes), reverse=True)
        for memory in keeping:
            if excess_bytes <= 0:
                break
            excess_bytes -= memory.kept_bytes
            self.close(memory, limit)


def _is_kept_over(size: int, working_bytes: int, limit: int) -> bool:
    return size > limit and size - working_bytes > limit // 2
