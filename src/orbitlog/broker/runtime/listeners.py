"""Listeners: the broker's port, the VIP port two below it, and warnings about which clients can reach them."""

from __future__ import annotations

import ipaddress
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.listen_address import contradiction
from orbitlog.observe.metrics_settings import SLOW_REQUEST_MS
from orbitlog.remoting.connection import Address, FastPath, Handler
from orbitlog.remoting.guarded_limits import guarded_limits
from orbitlog.remoting.memory_budget import MemoryBudget
from orbitlog.remoting.request_dispatch import warn_of_open_access
from orbitlog.remoting.server import RemotingServer
from orbitlog.settings.listen_exposure import AnonymousAccess

if TYPE_CHECKING:
    from orbitlog.broker.metrics.broker_meters import BrokerMeters
    from orbitlog.remoting.tls.server_tls import ServerTls

log = logging.getLogger(__name__)

_VIP_DISTANCE = 2
_CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


class Listeners:
    """The servers of one broker, which share their handler."""

    def __init__(
        self,
        state: BrokerState,
        handler: Handler,
        fast_path: FastPath,
        *,
        is_guarded: bool = False,
        tls: ServerTls | None = None,
    ) -> None:
        self._state = state
        self.tls = tls
        self._is_guarded = is_guarded
        settings = state.settings
        limits = guarded_limits(
            state.limits,
            connections=settings[keys.CONNECTIONS_MAX],
            message_bytes=partial(settings.__getitem__, keys.MESSAGE_BYTES),
            slow_ms=settings[SLOW_REQUEST_MS],
            last_append_ms=lambda: state.store.last_append_ms,
        )
        self._make_server = partial(
            RemotingServer,
            handler,
            host=settings[keys.BIND_ADDRESS],
            limits=limits,
            fast_path=fast_path,
            counters=state.limits,
            memory=MemoryBudget(limits.memory, state.limits),
            tls=tls,
        )
        self.main = self._make_server(port=settings[keys.LISTEN_PORT])
        self._vip: RemotingServer | None = None
        self.meters: BrokerMeters | None = None
        """Metrics and their port, if they are on; the broker sets it."""

    @property
    def address(self) -> Address:
        """Host and port of the main listener; it must have been started."""
        return self.main.address

    @property
    def connection_count(self) -> int:
        """Open connections of both ports."""
        return len(self.main.connections) + (len(self._vip.connections) if self._vip is not None else 0)

    async def start(self) -> None:
        """Listen; raise an `OSError` if the port is taken. A VIP port that is taken is only logged."""
        await self.main.start()
        await self._start_vip()
        if self.meters is not None:
            await self.meters.start()

    async def stop(self) -> None:
        """Close all listeners after the requests taken so far have been answered."""
        await self.main.stop()
        if self._vip is not None:
            await self._vip.stop()
        if self.meters is not None:
            await self.meters.stop()

    async def _start_vip(self) -> None:
        """Listen two ports below: clients before 4.5 send there, and nowhere else."""
        settings = self._state.settings
        port = settings[keys.LISTEN_PORT] - _VIP_DISTANCE
        if port <= 0 or not settings[keys.VIP_CHANNEL]:
            return
        server = self._make_server(port=port)
        try:
            await server.start()
        except OSError as error:
            log.warning("VIP port %d is not available (%s): clients before 4.5 cannot send, others can", port, error)
        else:
            self._vip = server

    def warn_of_exposure(self) -> None:
        """Warn if other machines can connect, or cannot connect to the address that the broker advertises."""
        settings = self._state.settings
        if sentence := contradiction(settings, self._state.advertised_ips):
            log.warning("%s", sentence)
        bound = ipaddress.ip_address(settings[keys.BIND_ADDRESS] or "0.0.0.0")  # noqa: S104 - compared, not bound
        if bound.is_loopback:
            return
        if not self._is_guarded:
            allows = settings[keys.ALLOW_ANONYMOUS] is AnonymousAccess.ALL
            warn_of_open_access("broker", str(bound), allows_anonymous=allows)
        is_container = any(map(os.path.exists, _CONTAINER_MARKS))
        if bound.is_unspecified and not settings[keys.ADVERTISED_ADDRESS] and is_container:
            log.warning(
                "running in a container without brokerIP1: clients outside cannot connect through published ports;"
                " set brokerIP1 to an address that they can reach"
            )
