"""Slave hub: the slaves that are connected to this master. Mirrors `DefaultHAService`.

A connection to the HA port gets every message, so only members are admitted: listed ones or, without a list, processes
of this machine.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from orbitlog.remoting.flow import Repeated
from orbitlog.replication.replica_acks import ReplicaAcks
from orbitlog.replication.slave_connection import LogSource, SlaveConnection, SlaveEvents, SlaveLimits

log = logging.getLogger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_REFUSALS_LOGGED_MAX = 32
_TICK_S = 1.0
LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


class SlaveStatus(NamedTuple):
    """One connected slave, for `haStatus`."""

    peer: str
    sent_to: int
    acked_to: int
    lag_bytes: int
    bytes_per_second: int
    is_observer: bool = False
    """Whether it acknowledges nothing; its lag is not known."""


class SlaveHub:
    """Feeds the slaves of one master, from the networks `members`.

    `acks` is None for a master that does not wait for its slaves; `replicated` is called when its mark has grown.
    """

    def __init__(
        self,
        source: LogSource,
        limits: SlaveLimits,
        *,
        members: Sequence[Network],
        acks: ReplicaAcks | None = None,
        replicated: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._limits = limits
        self._members = members
        self._acks = acks
        self._replicated = replicated
        self._connections: dict[SlaveConnection, None] = {}  # the oldest first
        self._next_tick: asyncio.TimerHandle | None = None
        self._push_planned: asyncio.Handle | None = None
        self._refused: set[str] = set()
        self._closed = Repeated()

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection; a listener's factory."""
        return _Admission(self)

    def close(self) -> None:
        """Close all connections."""
        for handle in (self._next_tick, self._push_planned):
            if handle is not None:
                handle.cancel()
        for connection in list(self._connections):
            connection.close("shutdown")

    def appended(self) -> None:
        """Push new bytes at the end of this turn of the loop: one transfer has all messages of the turn."""
        if self._connections and self._push_planned is None:
            self._push_planned = asyncio.get_running_loop().call_soon(self._push_all)

    def slaves(self) -> list[SlaveStatus]:
        """Return the connected slaves that have stated their first offset."""
        end = self._source.confirmed_to
        return [
            SlaveStatus(
                connection.peer,
                progress.sent_to,
                progress.acked_to,
                progress.lag_bytes(end),
                connection.bytes_per_second,
                progress.is_observer,
            )
            for connection in self._connections
            if (progress := connection.progress) is not None
        ]

    def admit(self, peer_ip: str) -> SlaveConnection | None:
        """Return the protocol of a new connection; None if the peer may not connect."""
        reason = ""
        if not self._is_member(peer_ip):
            reason = f"it is not a member of this group; if it is a slave, add its address to haMembers ({peer_ip})"
        elif len(self._connections) >= self._limits.connections_max and not self._close_silent():
            reason = f"{len(self._connections)} connections are open"
        if reason:
            if peer_ip not in self._refused and len(self._refused) < _REFUSALS_LOGGED_MAX:
                self._refused.add(peer_ip)
                log.warning("refusing HA connection of %s: %s", peer_ip, reason)
            return None
        events = SlaveEvents(self._on_joined, self._on_acknowledged, self._on_left, self._closed.is_worth_a_line)
        connection = SlaveConnection(self._source, self._limits, events)
        self._connections[connection] = None
        if self._next_tick is None:
            self._tick()
        return connection

    def _close_silent(self) -> bool:
        """Close the oldest connection that has reported nothing; return False if all of them follow the log.

        Otherwise connections that never report would keep slaves out until they time out.
        """
        self._limits.on_full()
        silent = next((connection for connection in self._connections if connection.progress is None), None)
        if silent is None:
            return False
        del self._connections[silent]  # now: the event loop reports its end later
        silent.close("it has reported nothing, and too many connections are open")
        return True

    def _is_member(self, peer_ip: str) -> bool:
        address = ipaddress.ip_address(peer_ip)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address.version == network.version and address in network for network in self._members)

    def _on_joined(self, connection: SlaveConnection) -> None:
        if self._acks is not None and connection.progress is not None:
            self._acks.join(connection.progress)

    def _on_acknowledged(self) -> None:
        if self._acks is not None and self._acks.update():
            self._replicated()

    def _on_left(self, connection: SlaveConnection) -> None:
        self._connections.pop(connection, None)
        if connection.progress is not None:
            log.info("slave %s disconnected", connection.peer)
        if self._acks is not None and connection.progress is not None:
            self._acks.leave(connection.progress)

    def _push_all(self) -> None:
        self._push_planned = None
        for connection in list(self._connections):
            connection.push()

    def _tick(self) -> None:
        self._next_tick = None
        loop = asyncio.get_running_loop()
        for connection in list(self._connections):
            connection.tick(loop.time())
        if self._connections:
            self._next_tick = loop.call_later(_TICK_S, self._tick)


class _Admission(asyncio.Protocol):
    """A connection until its peer is known; the event loop asks for a protocol before that."""

    def __init__(self, hub: SlaveHub) -> None:
        self._hub = hub

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
        peer = transport.get_extra_info("peername")
        connection = self._hub.admit(peer[0]) if peer else None
        if connection is None:
            transport.abort()
            return
        transport.set_protocol(connection)
        connection.connection_made(transport)
