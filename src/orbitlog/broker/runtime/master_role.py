"""Master role: the HA port on which slaves follow this broker, and the copies that a SYNC_MASTER waits for."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.settings.limits import HA_CONNECTIONS

if TYPE_CHECKING:
    from orbitlog.replication.replica_acks import ReplicaAcks
    from orbitlog.replication.slave_hub import SlaveHub, SlaveStatus

log = logging.getLogger(__name__)

_PORT_MAX = 65535


def replica_acks(settings: BrokerSettings) -> ReplicaAcks | None:
    """Return what sends wait for; None for a master that does not wait for slaves."""
    if settings[ha_keys.BROKER_ROLE] != "SYNC_MASTER":
        return None
    from orbitlog.replication.replica_acks import ReplicaAcks

    copies = settings[ha_keys.IN_SYNC_REPLICAS]
    if copies < 2 and settings[ha_keys.SYNC_ALONE]:
        return None
    return ReplicaAcks(max(copies, 2), min(settings[ha_keys.HA_LAG_BYTES], settings[ha_keys.HA_LAG_BYTES_5X]))


class MasterRole:
    """Serves the log to slaves; most brokers have none, so the hub is imported with the first connection.

    `replicated` is called when more of the log has enough copies. With `admits_local` slaves of this machine need not
    be listed while the broker listens on loopback; not with access control, which the HA protocol does not have.
    """

    is_in_group = False
    """Whether the role comes from a replica group, and can end at any time."""

    def __init__(
        self, state: BrokerState, acks: ReplicaAcks | None, replicated: Callable[[], None], *, admits_local: bool
    ) -> None:
        self._state = state
        self._acks = acks
        self._replicated = replicated
        self._admits_local = admits_local
        self._listener: asyncio.Server | None = None
        self.port = 0
        """Port for slaves; 0 without a listener."""
        self.appended: Callable[[], None] = _nothing
        """Call it after each append. A field: it is the hub's own method once a slave has connected."""

    def replicate_tables(self) -> asyncio.Future[None] | None:
        """Replicate a topic that a send has created; None if sends do not wait for that, as outside of a group."""
        return None

    @property
    def slaves(self) -> list[SlaveStatus]:
        """The connected slaves."""
        return [] if self.appended is _nothing else self._hub.slaves()

    @property
    def has_enough_slaves(self) -> bool:
        """Return whether a send may wait for slaves; True for a master that waits for none."""
        return self._acks is None or self._acks.has_enough_slaves(self._state.store.written_to)

    async def start(self) -> None:
        """Listen for slaves, after the broker's own port is known.

        Raise an `OSError` if the port is taken and either chosen by `haListenPort` or needed by a SYNC_MASTER.
        """
        settings, host, port = self._state.settings, self._state.settings[keys.BIND_ADDRESS], self._port()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._accept, host, port, reuse_address=True, family=family
            )
        except OSError as error:
            if settings[ha_keys.HA_PORT] or self._acks is not None:
                raise
            log.warning(
                "HA port %d is not available (%s): slaves cannot follow this broker; set haListenPort", port, error
            )
        else:
            self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the HA port and the connections of slaves."""
        if self._listener is None:
            return
        self._listener.close()
        if self.appended is not _nothing:
            self._hub.close()
            self.appended = _nothing
        await self._listener.wait_closed()

    def _port(self) -> int:
        """Return the port to listen on: the one after the broker's, as Java; a free one if the broker's was free."""
        settings = self._state.settings
        if settings[ha_keys.HA_PORT] or not settings[keys.LISTEN_PORT]:
            return settings[ha_keys.HA_PORT]
        return (settings[keys.LISTEN_PORT] + 1) % (_PORT_MAX + 1)

    def _accept(self) -> asyncio.Protocol:
        self.appended = self._hub.appended
        return self._hub.accept()

    @cached_property
    def _hub(self) -> SlaveHub:
        from orbitlog.replication.slave_connection import SlaveLimits
        from orbitlog.replication.slave_hub import LOOPBACK, SlaveHub

        settings, counters = self._state.settings, self._state.limits
        limits = SlaveLimits(
            transfer_bytes=settings[ha_keys.HA_TRANSFER_BYTES],
            heartbeat_s=settings[ha_keys.HA_HEARTBEAT_MS] / 1000,
            silence_s=settings[ha_keys.HA_SILENCE_MS] / 1000,
            starts_at_last_segment=settings[ha_keys.FIRST_REQUEST] == "last",
            bytes_per_second_max=settings[ha_keys.FLOW_BYTES] if settings[ha_keys.FLOW_CONTROL] else 0,
            connections_max=counters[HA_CONNECTIONS],
            on_full=lambda: counters.reach(HA_CONNECTIONS),
        )
        bound = ipaddress.ip_address(settings[keys.BIND_ADDRESS] or "0.0.0.0")  # noqa: S104 - compared, not bound
        members = settings[ha_keys.HA_MEMBERS] or (LOOPBACK if self._admits_local and bound.is_loopback else ())
        return SlaveHub(self._state.store, limits, members=members, acks=self._acks, replicated=self._replicated)


def _nothing() -> None:
    pass
