"""Registration with the name servers: at start, when a topic changes, every 30 seconds, and when the broker stops.

Mirrors `BrokerOuterAPI.registerBrokerAll`. Connections to name servers stay open: a name server removes a broker when
its connection closes. After a lost connection registration is retried every second: a restarted name server knows
no broker, and clients would get no route until the next regular registration.

A broker with more topics than `splitRegistrationSize` registers them in parts, as 5.x does with
`enableSplitRegistration`: each part has a data version of its own, since name servers skip a known one. Later changes
are registered alone, and at the regular interval the name server is only asked whether it has the current version.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.coalesced_call import CoalescedCall
from orbitlog.broker.runtime.replication_settings import HA_ADDRESS
from orbitlog.errors import FormatError, RemotingError
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig
from orbitlog.observe.conditions import NAME_SERVER_LOST
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Connection
from orbitlog.remoting.loop_slices import in_slices, sliced
from orbitlog.settings.listen_exposure import join_address
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.registration_body import Registration as RegistrationBody
from orbitlog.wire.bodies.registration_body import TopicWrapper, encoding_steps, registration_crc
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.nameserver_headers import (
    QueryDataVersionRequest,
    QueryDataVersionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    UnregisterBrokerRequest,
)

if TYPE_CHECKING:
    from orbitlog.broker.runtime.name_server_lookup import NameServerLookup

log = logging.getLogger(__name__)

_UNREGISTER_SECONDS = 3.0
_ANNOUNCE_SECONDS = 1.0


class _Refused(RemotingError):
    """A name server responded with another code than success."""

    advice = "see the remark of the name server; registration is retried"


@dataclass(slots=True)
class _View:
    """What a name server knows: the last version registered completely, and over which connection."""

    version: DataVersion
    connection: Connection | None


class Registration:
    """Registers one broker with its name servers."""

    def __init__(self, state: BrokerState, client: RemotingClient, ha_port: Callable[[], int]) -> None:
        self._state = state
        self._client = client
        self._ha_port = ha_port
        self._lookup: NameServerLookup | None = None
        self._addresses: tuple[str, ...] = state.settings[keys.NAME_SERVERS]
        self._known_to: set[str] = set()
        self._views: dict[str, _View] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._part_number = 0
        self._announcements = CoalescedCall(self.register)
        self.changed = asyncio.Event()
        self.is_fenced = False
        """Register nothing: a member of a replica group without a role must not be in a route."""
        self.answered: Callable[[RegisterBrokerResponse], None] | None = None
        """Called with the answers of name servers: they name a slave's master."""

    @property
    def is_known(self) -> bool:
        """Return whether a name server has accepted the last registration."""
        return bool(self._known_to)

    async def register(self) -> None:
        """Register with all name servers concurrently."""
        await self._look_up()
        await self._register_with(self._addresses)

    async def register_lost(self) -> None:
        """Register with the name servers without an open connection."""
        lost = [address for address in self._addresses if self._client.open_connection(address) is None]
        await self._register_with(lost)

    async def _look_up(self) -> None:
        """Set the addresses of the name servers; forget those that host names no longer have."""
        before, name_servers = self._addresses, self._state.settings[keys.NAME_SERVERS]
        if self._state.settings[keys.NAME_SERVER_LOOKUP]:
            from orbitlog.broker.runtime.name_server_lookup import NameServerLookup  # off by default

            self._lookup = self._lookup or NameServerLookup()
            self._addresses = await self._lookup.addresses(name_servers)
        else:
            self._addresses = name_servers
        for address in set(before) - set(self._addresses):
            self._views.pop(address, None)
            self._known_to.discard(address)
            self._state.conditions.end(NAME_SERVER_LOST, address, "its host name has another address")

    async def _register_with(self, addresses: Sequence[str]) -> None:
        if self.is_fenced:
            return
        await asyncio.gather(*map(self._register_at, addresses))

    async def announce(self) -> None:
        """Register a change with all name servers; return after a second even if one does not respond."""
        await asyncio.wait({self._announcements.begin()}, timeout=_ANNOUNCE_SECONDS)

    async def close(self) -> None:
        """Cancel registrations in progress."""
        await self._announcements.close()

    async def unregister(self) -> None:
        """Unregister from the name servers that know this broker."""
        await asyncio.gather(*map(self._unregister_at, list(self._known_to)))

    async def _register_at(self, address: str) -> None:
        """Register with one name server; registrations with the same one follow each other."""
        async with self._locks.setdefault(address, asyncio.Lock()):
            try:
                registered_as = await self._register_all(address)
            except RemotingError as error:
                self._views.pop(address, None)
                self._known_to.discard(address)
                if address in self._addresses:  # not if a lookup has removed it meanwhile: nothing would end it
                    self._state.conditions.set(NAME_SERVER_LOST, str(error), address)
                return
        is_back = self._state.conditions.set(NAME_SERVER_LOST, "", address)
        if address not in self._known_to and not is_back:
            log.info("registered with name server %s as %s", address, registered_as)
        self._known_to.add(address)

    async def _register_all(self, address: str) -> str:
        """Register what a name server lacks; return the address under which it knows this broker."""
        header = await self._header(address)
        topics, size = self._state.topics, self._part_size
        version = topics.data_version
        if len(topics.table) <= size:
            await self._send(address, header, list(topics.table), version)
            return header.broker_address
        view = self._views.get(address)
        if view is None or view.connection is None or self._client.open_connection(address) is not view.connection:
            view = None
        changed = None if view is None else topics.changed_since(view.version)
        if view is not None and view.version == version and self.answered is None:
            if await self._is_current(address, header, version):
                return header.broker_address
            changed = None
        if changed is not None and len(changed) <= size:
            await self._send(address, header, changed, version)
        else:
            await self._send_parts(address, header, version)
        self._views[address] = _View(version, self._client.open_connection(address))
        return header.broker_address

    @property
    def _part_size(self) -> int:
        """Return the number of topics up to which a registration is sent as a whole."""
        settings = self._state.settings
        return (
            settings[keys.SPLIT_REGISTRATION_SIZE]
            if settings[keys.SPLIT_REGISTRATION]
            else len(self._state.topics.table)
        )

    async def _send_parts(self, address: str, header: RegisterBrokerRequest, version: DataVersion) -> None:
        """Register all topics in parts; the last one has the version of the table."""
        parts: Iterator[list[str]] = sliced(list(self._state.topics.table), self._part_size)
        part = next(parts, [])
        for following in parts:
            self._part_number += 1
            # Negative: no version of the table, or of another part, is equal to it.
            await self._send(address, header, part, replace(version, counter=-self._part_number))
            part = following
        await self._send(address, header, part, version)

    async def _send(
        self, address: str, header: RegisterBrokerRequest, names: Sequence[str], version: DataVersion
    ) -> None:
        """Register some topics; raise a `RemotingError` if that fails."""
        settings = self._state.settings
        topics = self._state.topics.registered(names, settings[keys.BROKER_PERMISSION])
        compressed = settings[keys.COMPRESSED_REGISTER] and all(map(_survives_compression, topics.values()))
        wrapper = TopicWrapper(topics=topics, data_version=version)
        body = await in_slices(encoding_steps(RegistrationBody(wrapper=wrapper), compressed=compressed))
        header = replace(header, body_crc32=registration_crc(body), compressed=compressed)
        request = Command(RequestCode.REGISTER_BROKER, ext_fields=header.to_ext_fields(), body=body)
        answer = await self._client.invoke(address, request, settings[keys.REGISTER_TIMEOUT_MS] / 1000)
        if answer.code != ResponseCode.SUCCESS:
            raise _Refused(f"{answer.remark} (code {answer.code})")
        if self.answered is not None:
            self.answered(RegisterBrokerResponse.from_ext_fields(answer.ext_fields))

    async def _is_current(self, address: str, header: RegisterBrokerRequest, version: DataVersion) -> bool:
        """Return whether a name server still has this version; the request is a sign of life as well."""
        asked = QueryDataVersionRequest(
            broker_name=header.broker_name,
            broker_address=header.broker_address,
            cluster=header.cluster,
            broker_id=header.broker_id,
        )
        request = Command(RequestCode.QUERY_DATA_VERSION, ext_fields=asked.to_ext_fields(), body=encode_body(version))
        answer = await self._client.invoke(address, request, self._state.settings[keys.REGISTER_TIMEOUT_MS] / 1000)
        if answer.code != ResponseCode.SUCCESS:
            return False
        try:
            return not QueryDataVersionResponse.from_ext_fields(answer.ext_fields).changed
        except FormatError:
            return False

    async def _header(self, address: str) -> RegisterBrokerRequest:
        ip = await self._ip_for(address)
        return RegisterBrokerRequest(
            broker_name=self._state.broker_name,
            broker_address=join_address(ip, self._state.listen_port),
            cluster=self._state.cluster_name,
            ha_address=join_address(self._state.settings[HA_ADDRESS] or ip, self._ha_port()) if self._ha_port() else "",
            broker_id=self._state.settings[keys.BROKER_ID],
        )

    async def _unregister_at(self, address: str) -> None:
        try:
            header = UnregisterBrokerRequest(
                broker_name=self._state.broker_name,
                broker_address=join_address(await self._ip_for(address), self._state.listen_port),
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


def _survives_compression(topic: TopicConfig) -> bool:
    """Return whether the compressed form loses nothing that a name server uses, and 4.9 reads it."""
    return not topic.sys_flag and not topic.attributes
