"""Broker handlers of a name server: registration, heartbeats, unregistration, and the removal of brokers that left.

A registration is decoded and applied in steps, so that a broker with a hundred thousand topics does not delay other
requests. Registrations under one name are applied one after the other. Mirrors parts of `DefaultRequestProcessor` and
`BrokerHousekeepingService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

from orbitlog.errors import BadField, RequestRefused
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig
from orbitlog.nameserver.route_table import RouteTable
from orbitlog.observe.conditions import BROKER_LOST, Conditions
from orbitlog.remoting.connection import Connection, Handler
from orbitlog.remoting.loop_slices import COUNTERS, in_slices
from orbitlog.settings import limits as limit_keys
from orbitlog.settings.limits import Limits
from orbitlog.wire import nameserver_headers as headers
from orbitlog.wire.bodies.body_json import decode_request_body, encode_body
from orbitlog.wire.bodies.registration_body import Registration, registration_crc, registration_steps
from orbitlog.wire.bodies.route_bodies import TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to

log = logging.getLogger(__name__)

NAME_CHARACTERS_MAX = 255
_TOPIC_VALUES_MAX = 4_096  # of the queues of one topic, an entry for each broker
# A broker that does not come back is expected for this time.
_EXPECTED_S = 3_600.0


class BrokerHandlers:
    """Serves the requests of brokers; `table` lists the codes. `ordered_topics` is the body of each response."""

    def __init__(
        self,
        routes: RouteTable,
        limits: Limits,
        now_ms: Callable[[], int],
        ordered_topics: Callable[[], bytes],
        conditions: Conditions,
    ) -> None:
        self._routes = routes
        self._limits = limits
        self._now_ms = now_ms
        self._ordered_topics = ordered_topics
        self._conditions = conditions
        self._watched: set[Connection] = set()
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._sweep: asyncio.Handle | None = None

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
        }

    async def _register(self, connection: Connection, request: Command) -> Command:
        header = headers.RegisterBrokerRequest.from_ext_fields(request.ext_fields)
        for name in (header.cluster, header.broker_name, header.broker_address):
            check_name(name)
        if header.broker_id < 0:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"brokerId {header.broker_id} is negative")
        if header.body_crc32 and header.body_crc32 != registration_crc(request.body):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        self._check_brokers(connection, header)
        registration = await in_slices(
            registration_steps(
                request.body,
                compressed=header.compressed,
                version=request.version,
                inflated_bytes_max=self._limits[limit_keys.NAMESERVER_INFLATED_BYTES],
                check=self._check_topic,
            )
        )
        lock = self._names.get(header.broker_name)
        if lock is None:
            lock = self._names[header.broker_name] = asyncio.Lock()
        async with lock:
            answer = await self._apply(connection, header, registration)
        if answer is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "register broker failed")
        return response_to(
            request, ResponseCode.SUCCESS, ext_fields=answer.to_ext_fields(), body=self._ordered_topics()
        )

    async def _apply(
        self, connection: Connection, header: headers.RegisterBrokerRequest, registration: Registration
    ) -> headers.RegisterBrokerResponse | None:
        """Apply a decoded registration; nothing of it if the connection closed while it was decoded."""
        if connection.is_closed:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the connection is closed")
        self._check_brokers(connection, header)
        self._check_topics(connection, header, registration)
        if connection not in self._watched:
            self._watched.add(connection)
            connection.on_close(self._connection_closed)
        if (header.heartbeat_timeout_ms or 0) > self._limits[limit_keys.HEARTBEAT_TIMEOUT_MS]:
            self._limits.reach(limit_keys.HEARTBEAT_TIMEOUT_MS)  # the table shortens it
        is_new = not self._routes.knows(header.cluster, header.broker_address)
        answer = await in_slices(
            self._routes.register_steps(
                header,
                registration,
                now_ms=self._now_ms(),
                connection=connection,
                host=connection.remote_address[0],
            )
        )
        if answer is not None:
            self._conditions.end(BROKER_LOST, header.broker_address)
        if is_new and answer is not None:
            log.info(
                "broker %s (id %d, cluster %s) registered from %s as %s with %d topics",
                *(header.broker_name, header.broker_id, header.cluster, connection.peer, header.broker_address),
                len(registration.wrapper.topics),
            )
        return answer

    def _check_topic(self, config: TopicConfig) -> None:
        check_name(config.topic)
        self._check_queues(config.read_queue_count, config.write_queue_count)

    def _check_queues(self, *counts: int) -> None:
        """Refuse numbers of queues that clients could not list; they create an object for each queue of a route."""
        self._limits.refuse_over(limit_keys.QUEUES_PER_TOPIC, max(counts))

    def _check_brokers(self, connection: Connection, header: headers.RegisterBrokerRequest) -> None:
        """Raise `RequestRefused` if one more broker is too many, in all or over this connection."""
        if self._routes.knows(header.cluster, header.broker_address):
            return
        self._limits.refuse_over(limit_keys.NAMESERVER_BROKERS, self._routes.broker_count + 1)
        count = self._routes.brokers_of(connection) + 1
        self._limits.refuse_over(limit_keys.NAMESERVER_BROKERS_PER_CONNECTION, count)

    def _check_topics(
        self, connection: Connection, header: headers.RegisterBrokerRequest, registration: Registration
    ) -> None:
        """Raise `RequestRefused` if these topics are too many, in all or over this connection."""
        topics = registration.wrapper.topics
        for limit, count in (
            (limit_keys.NAMESERVER_TOPICS, self._routes.entry_count),
            (limit_keys.NAMESERVER_TOPICS_PER_CONNECTION, self._routes.entries_of(connection)),
        ):
            if count + len(topics) > self._limits[limit]:
                self._limits.refuse_over(limit, count + self._routes.new_entries(header.broker_name, topics))

    def _unregister(self, connection: Connection, request: Command) -> Command:
        header = headers.UnregisterBrokerRequest.from_ext_fields(request.ext_fields)
        if not self._routes.owns(header.cluster, header.broker_address, connection):
            log.warning(
                "refused to unregister broker %s: %s is not its connection", header.broker_name, connection.peer
            )
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                "only a connection over which a broker registered can unregister it (protectBrokerNames)",
            )
        self._routes.unregister(header.cluster, header.broker_address, header.broker_name)
        self._sweep_soon()
        self._conditions.end(BROKER_LOST, header.broker_address, "unregistered")
        log.info("broker %s at %s unregistered", header.broker_name, header.broker_address)
        return response_to(request, ResponseCode.SUCCESS)

    def _query_data_version(self, connection: Connection, request: Command) -> Command:
        header = headers.QueryDataVersionRequest.from_ext_fields(request.ext_fields)
        asked = decode_request_body(DataVersion, request.body)
        changed = self._routes.has_changed(header.cluster, header.broker_address, asked)
        self._touch(connection, header.cluster, header.broker_address)
        known = self._routes.data_version(header.cluster, header.broker_address)
        response = headers.QueryDataVersionResponse(changed=changed)
        body = b"" if known is None else encode_body(known)
        return response_to(request, ResponseCode.SUCCESS, ext_fields=response.to_ext_fields(), body=body)

    def _heartbeat(self, connection: Connection, request: Command) -> Command:
        header = headers.BrokerHeartbeatRequest.from_ext_fields(request.ext_fields)
        self._touch(connection, header.cluster, header.broker_address)
        return response_to(request, ResponseCode.SUCCESS)

    def _touch(self, connection: Connection, cluster: str, address: str) -> None:
        """Record a sign of life, unless it comes from a stranger: it would keep a dead broker in the routes."""
        if self._routes.owns(cluster, address, connection):
            self._routes.touch(cluster, address, self._now_ms())

    def _register_topic(self, connection: Connection, request: Command) -> Command:
        """Register one topic of a broker that is registered already."""
        header = headers.TopicRequest.from_ext_fields(request.ext_fields)
        check_name(header.topic)
        queues = decode_request_body(TopicRoute, request.body, values_max=_TOPIC_VALUES_MAX).queues
        for queue in queues:
            self._check_queues(queue.read_queue_count, queue.write_queue_count)
            if not self._routes.owns_name(queue.broker_name, connection):
                raise RequestRefused(
                    ResponseCode.NO_PERMISSION,
                    f"broker {queue.broker_name[:NAME_CHARACTERS_MAX]} did not register over this connection"
                    " (protectBrokerNames)",
                )
        self._limits.refuse_over(limit_keys.NAMESERVER_TOPICS, self._routes.entry_count + len(queues))
        self._routes.register_topic(header.topic, queues)
        return response_to(request, ResponseCode.SUCCESS)

    # Brokers that leave

    def remove_silent(self) -> None:
        """Remove brokers that were silent for too long, and close their connections."""
        for key, connection in self._routes.expire(self._now_ms()):
            self._conditions.set(BROKER_LOST, "no registration or heartbeat for too long", key.address)
            assert isinstance(connection, Connection)
            connection.close()
        self._conditions.expire(BROKER_LOST, _EXPECTED_S)
        self._sweep_soon()

    def _connection_closed(self, connection: Connection) -> None:
        self._watched.discard(connection)
        for key in self._routes.connection_closed(connection):
            self._conditions.set(BROKER_LOST, "its connection closed", key.address)
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        """Clean up after brokers that left, in steps."""
        if self._sweep is None and self._routes.needs_sweep:
            self._sweep = asyncio.get_running_loop().call_soon(self._sweep_once)

    def _sweep_once(self) -> None:
        COUNTERS.note(self._routes.sweep())
        self._sweep = None
        self._sweep_soon()

    def stop(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()


def check_name(name: str) -> None:
    """Check a broker name, by default a host name: more is allowed than in a topic name, but no blanks."""
    if not name or len(name) > NAME_CHARACTERS_MAX or not name.isprintable() or " " in name:
        raise BadField(f"{name[:40]!r} is empty, too long, or has blanks or control characters", field="name")
