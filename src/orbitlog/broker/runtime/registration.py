"""Registration with the name servers: at start, when a topic changes, every 30 seconds, and when the broker stops.

Mirrors `BrokerOuterAPI.registerBrokerAll`. Connections to name servers stay open: a name server removes a broker when
its connection closes. After a lost connection registration is retried every second: a restarted name server knows
no broker, and clients would get no route until the next regular registration.
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
    """Registers one broker with its name servers."""

    def __init__(self, state: BrokerState, client: RemotingClient) -> None:
        self._state = state
        self._client = client
        self._known_to: set[str] = set()
        self._reported: set[str] = set()
        self._announcements = CoalescedCall(self.register)
        self.changed = asyncio.Event()

    async def register(self) -> None:
        """Register with all name servers concurrently."""
        addresses: tuple[str, ...] = self._state.settings[keys.NAME_SERVERS]
        await self._register_with(addresses)

    async def register_lost(self) -> None:
        """Register with the name servers without an open connection."""
        addresses: tuple[str, ...] = self._state.settings[keys.NAME_SERVERS]
        await self._register_with([address for address in addresses if self._client.open_connection(address) is None])

    async def _register_with(self, addresses: Sequence[str]) -> None:
        if addresses:
            body = self._body()
            await asyncio.gather(*(self._register_at(address, body) for address in addresses))

    async def announce(self) -> None:
        """Register a change with all name servers; return after a second even if one does not respond."""
        await asyncio.wait({self._announcements.begin()}, timeout=_ANNOUNCE_SECONDS)

    async def close(self) -> None:
        """Cancel registrations in progress."""
        await self._announcements.close()

    async def unregister(self) -> None:
        """Unregister from the name servers that know this broker."""
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
            self._log_failure(address, str(error))
            return
        if answer.code != ResponseCode.SUCCESS:
            self._log_failure(address, f"{answer.remark} (code {answer.code})")
            return
        if address not in self._known_to:
            log.info("registered with name server %s as %s", address, header.broker_address)
        self._known_to.add(address)
        self._reported.discard(address)

    def _log_failure(self, address: str, reason: str) -> None:
        """Log a failed registration, once until the next success."""
        self._known_to.discard(address)
        if address not in self._reported:
            self._reported.add(address)
            log.warning("could not register with name server %s, retrying: %s", address, reason)

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
            log.info("could not unregister from name server %s: %s", address, error)

    async def _ip_for(self, address: str) -> str:
        """Return the address to register: the local one of the connection to this name server, unless one is set."""
        settings = self._state.settings
        if settings[keys.ADVERTISED_ADDRESS]:
            return settings[keys.ADVERTISED_ADDRESS]
        bound = ipaddress.ip_address(settings[keys.BIND_ADDRESS] or "0.0.0.0")  # noqa: S104 - compared, not bound
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
