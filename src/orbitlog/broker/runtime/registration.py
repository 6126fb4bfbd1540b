"""Telling name servers about this broker: at start, when a topic changes, every half minute, and when it stops.

Mirrors `BrokerOuterAPI.registerBrokerAll`. Each name server has its own connection, which stays open: a name server
forgets a broker the moment that closes. So one whose connection has closed is tried again every second: a name server
that comes back knows nobody, and would send clients away until the half minute is over.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Sequence

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.coalesced_call import CoalescedCall
from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.bodies.registration_body import Registration as RegistrationBody
from orbitlog.wire.bodies.registration_body import TopicWrapper, encode_registration, registration_crc
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.nameserver_headers import RegisterBrokerRequest, UnregisterBrokerRequest

log = logging.getLogger(__name__)

_UNREGISTER_SECONDS = 3.0
_ANNOUNCE_SECONDS = 1.0


class Registration:
    """Keeps every name server informed."""

    def __init__(self, state: BrokerState, client: RemotingClient) -> None:
        self._state = state
        self._client = client
        self._known_to: set[str] = set()
        self._complained: set[str] = set()
        self._announcements = CoalescedCall(self.register)
        self.changed = asyncio.Event()

    async def register(self) -> None:
        """Tell all name servers, at the same time."""
        addresses: tuple[str, ...] = self._state.settings[keys.NAME_SERVERS]
        await self._tell(addresses)

    async def register_lost(self) -> None:
        """Tell those name servers to which no connection is open."""
        addresses: tuple[str, ...] = self._state.settings[keys.NAME_SERVERS]
        await self._tell([address for address in addresses if self._client.open_connection(address) is None])

    async def _tell(self, addresses: Sequence[str]) -> None:
        if addresses:
            body = self._body()
            await asyncio.gather(*(self._register_at(address, body) for address in addresses))

    async def announce(self) -> None:
        """Tell all name servers of a change; does not wait long for those that do not answer."""
        await asyncio.wait({self._announcements.begin()}, timeout=_ANNOUNCE_SECONDS)

    async def close(self) -> None:
        """End what is still being told."""
        await self._announcements.close()

    async def unregister(self) -> None:
        """Tell those that know this broker that it goes."""
        await asyncio.gather(*map(self._unregister_at, list(self._known_to)))

    async def _register_at(self, address: str, body: bytes) -> None:
        settings = self._state.settings
        try:
            ip = await self._ip_for(address)
            header = RegisterBrokerRequest(
                broker_name=self._state.broker_name,
                broker_address=_joined(ip, self._state.listen_port),
                cluster=self._state.cluster_name,
                ha_address=_joined(ip, self._state.listen_port + 1),
                broker_id=settings[keys.BROKER_ID],
                body_crc32=registration_crc(body),
            )
            request = Command(RequestCode.REGISTER_BROKER, ext_fields=header.to_ext_fields(), body=body)
            answer = await self._client.invoke(address, request, settings[keys.REGISTER_TIMEOUT_MS] / 1000)
        except RemotingError as error:
            self._complain(address, str(error))
            return
        if answer.code != ResponseCode.SUCCESS:
            self._complain(address, f"{answer.remark} (code {answer.code})")
            return
        if address not in self._known_to:
            log.info("registered with name server %s as %s", address, header.broker_address)
        self._known_to.add(address)
        self._complained.discard(address)

    def _complain(self, address: str, reason: str) -> None:
        """Log a failure, once until the next success."""
        self._known_to.discard(address)
        if address not in self._complained:
            self._complained.add(address)
            log.warning("name server %s does not know this broker: %s; it is tried again", address, reason)

    async def _unregister_at(self, address: str) -> None:
        try:
            header = UnregisterBrokerRequest(
                broker_name=self._state.broker_name,
                broker_address=_joined(await self._ip_for(address), self._state.listen_port),
                cluster=self._state.cluster_name,
                broker_id=self._state.settings[keys.BROKER_ID],
            )
            request = Command(RequestCode.UNREGISTER_BROKER, ext_fields=header.to_ext_fields())
            await self._client.invoke(address, request, _UNREGISTER_SECONDS)
        except RemotingError as error:
            log.info("name server %s was not told that the broker stops: %s", address, error)

    async def _ip_for(self, address: str) -> str:
        """Return the address that clients are told to dial: the one from which this name server is reached."""
        settings = self._state.settings
        if settings[keys.ADVERTISED_ADDRESS]:
            return settings[keys.ADVERTISED_ADDRESS]
        bound = ipaddress.ip_address(settings[keys.BIND_ADDRESS] or "0.0.0.0")  # noqa: S104 - asked, not listened on
        if not bound.is_unspecified:
            return str(bound)
        connection = await self._client.connect(address)
        return connection.local_address[0]

    def _body(self) -> bytes:
        table = self._state.topics.registered(self._state.settings[keys.BROKER_PERMISSION])
        wrapper = TopicWrapper(topics=table.topics, data_version=table.data_version)
        return encode_registration(RegistrationBody(wrapper=wrapper))


def _joined(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
