"""Name server: serves the route table to brokers and clients.

Responses come from the table alone; encoded routes are cached until the table changes. No request changes a setting:
UPDATE_NAMESRV_CONFIG is refused, and GET_NAMESRV_CONFIG leaves out paths and addresses but the port. Mirrors Java
`NamesrvController`, `DefaultRequestProcessor`, `ClientRequestProcessor`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from orbitlog.access.access_settings import access_options
from orbitlog.errors import RequestRefused
from orbitlog.formats.tables.json_records import JsonRecord
from orbitlog.nameserver.handle_brokers import NAME_CHARACTERS_MAX, BrokerHandlers
from orbitlog.nameserver.kv_configs import ORDER_TOPIC_CONFIG, KvConfigs
from orbitlog.nameserver.nameserver_settings import WAIT_SECONDS, WAITS, NameServerSettings
from orbitlog.nameserver.route_table import UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG, RouteTable
from orbitlog.observe.conditions import LIMIT_REACHED, Conditions, ReachedCounters
from orbitlog.observe.metrics_settings import SLOW_REQUEST_MS
from orbitlog.remoting.connection import Address, Connection, Handler
from orbitlog.remoting.guarded_limits import guarded_limits
from orbitlog.remoting.request_dispatch import Dispatch, LongRequests, warn_of_open_access, without_administration
from orbitlog.remoting.server import RemotingServer
from orbitlog.settings.limits import HEARTBEAT_TIMEOUT_MS, Limits
from orbitlog.settings.listen_exposure import join_address
from orbitlog.settings.secret_settings import shown_settings
from orbitlog.settings.tls_settings import TLS_SETTINGS, check_tls
from orbitlog.wire import nameserver_headers as headers
from orbitlog.wire.bodies.body_json import encode_body
from orbitlog.wire.bodies.list_bodies import KvTable, TopicList
from orbitlog.wire.bodies.route_bodies import BrokerMemberGroup, TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.header_codec import Header

if TYPE_CHECKING:
    from orbitlog.access.access_control import AccessControl
    from orbitlog.observe.certificate_watch import CertificateWatch
    from orbitlog.remoting.tls.server_tls import ServerTls
    from orbitlog.remoting.whole_tables import WholeTables

log = logging.getLogger(__name__)

# Settings about files and sockets, which are not returned to clients.
_PRIVATE_SETTINGS = frozenset(
    ("accessFile", "accessLogFile", "bindAddress", "kvConfigPath", "rocketmqHome", *TLS_SETTINGS)
)


class NameServer:
    """Serves routes; several name servers are independent of each other."""

    def __init__(
        self,
        settings: NameServerSettings | None = None,
        *,
        now_ms: Callable[[], int] | None = None,
        access: AccessControl | None = None,
        counted: Callable[[Handler], Handler] | None = None,
    ) -> None:
        """`counted` wraps the handler of all requests, for metrics."""
        self.settings = settings or NameServerSettings()
        self._now_ms = now_ms or (lambda: int(time.time() * 1000))
        self._access = access or _load_access(self.settings, self._now_ms)
        self._shares_access = access is not None
        self._tls = _load_tls(self.settings)
        self._certificate: CertificateWatch | None = None
        self.table = RouteTable(
            support_acting_master=self.settings.support_acting_master,
            delete_topics_left_out=self.settings.delete_topic_with_broker_registration,
            protects_names=self.settings.protect_broker_names,
            silence_max_ms=self.settings.limits[HEARTBEAT_TIMEOUT_MS.key],
        )
        self.limits = Limits(self.settings.limits)
        self.kv_configs = KvConfigs(self.settings.kv_config_path, self.limits)
        self.own_broker_addresses: tuple[str, ...] = ()
        """Registered addresses of brokers in this process, to be replaced in responses by the address a client used."""
        self._routes: dict[str, bytes] = {}
        self._routes_revision = -1
        waits = self.settings.waits
        self._routes_from_ms = self._now_ms() + waits[WAIT_SECONDS.key] * 1000 if waits[WAITS.key] else 0
        self.conditions = Conditions()
        self._reached = ReachedCounters(self.conditions, LIMIT_REACHED, self.limits.reached)
        self._brokers = BrokerHandlers(self.table, self.limits, self._now_ms, self._ordered_topics, self.conditions)
        self._scan: asyncio.TimerHandle | None = None
        handlers = self._handlers()
        self.served_codes = frozenset(map(int, handlers))
        if self.settings.is_exposed and self._access is None and not self.settings.allow_anonymous:
            handlers = without_administration(handlers, "name server", self.settings.bind_address)
        handler: Handler = Dispatch(LongRequests(self.limits).table(handlers))
        if self._access is not None:
            from orbitlog.nameserver.nameserver_access import guarded

            handler = guarded(handler, self._access)
        self._server = RemotingServer(
            handler if counted is None else counted(handler),
            host=self.settings.bind_address,
            port=self.settings.listen_port,
            limits=guarded_limits(
                self.limits,
                connections=self.settings.connections_max,
                idle_seconds=float(self.settings.server_channel_max_idle_time_seconds),
                slow_ms=self.settings.metrics[SLOW_REQUEST_MS.key],
            ),
            counters=self.limits,
            tls=self._tls,
        )

    @property
    def address(self) -> Address:
        """Host and port that the name server listens on; it must have been started."""
        return self._server.address

    @property
    def connections(self) -> set[Connection]:
        """The open connections."""
        return self._server.connections

    def watch_certificate(self) -> None:
        """Report a certificate that ends soon; with `orbitlog up` the broker does."""
        if self._tls is not None:
            from orbitlog.observe.certificate_watch import CertificateWatch  # imports ssl

            self._certificate = CertificateWatch(self.conditions, self._tls.options.files.certificate)

    async def start(self) -> None:
        """Listen; raise an `OSError` if the address is taken."""
        await self._server.start()
        if self.settings.is_exposed and self._access is None:
            address, allows = self.settings.bind_address, self.settings.allow_anonymous
            warn_of_open_access("name server", address, allows_anonymous=allows)
        self._check_periodically()

    async def stop(self) -> None:
        """Answer the requests read so far, and close."""
        if self._scan is not None:
            self._scan.cancel()
        self._brokers.stop()
        await self._server.stop(grace_seconds=2.0)
        if self._access is not None and not self._shares_access:
            self._access.close()

    def _handlers(self) -> Mapping[int, Handler]:
        return {
            **self._brokers.table,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._as_dialled(self._members),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._as_dialled(self._route),
            RequestCode.GET_BROKER_CLUSTER_INFO: self._as_dialled(
                lambda _, request: _success(request, self.table.cluster_info())
            ),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._as_dialled(
                lambda _, request: _success(request, self.table.system_topics())
            ),
            RequestCode.GET_UNIT_TOPIC_LIST: self._listed(lambda: self.table.unit_topics(has=UNIT_FLAG)),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listed(
                lambda: self.table.unit_topics(has=UNIT_SUBSCRIPTION_FLAG)
            ),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listed(
                lambda: self.table.unit_topics(has=UNIT_SUBSCRIPTION_FLAG, lacks=UNIT_FLAG)
            ),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_namespace,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._refuse_settings,
            RequestCode.GET_NAMESRV_CONFIG: self._show_settings,
        }

    def _as_dialled(self, handle: Callable[[Connection, Command], Command]) -> Callable[[Connection, Command], Command]:
        """Return a handler whose responses name this process's broker by the address that the client connected to.

        A machine, for example a container, has addresses that are of no use to clients that reached it by another one.
        """

        def answer(connection: Connection, request: Command) -> Command:
            response = handle(connection, request)
            host = connection.local_address[0]
            for address in self.own_broker_addresses if host else ():
                dialled = join_address(host, int(address.rpartition(":")[2]))
                response.body = response.body.replace(f'"{address}"'.encode(), f'"{dialled}"'.encode())
            return response

        return answer

    # Brokers

    def _members(self, _: Connection, request: Command) -> Command:
        header = headers.BrokerMemberGroupRequest.from_ext_fields(request.ext_fields)
        return _success(request, BrokerMemberGroup(self.table.members(header.cluster, header.broker_name)))

    def _check_periodically(self) -> None:
        interval_s = self.settings.scan_not_active_broker_interval / 1000
        # First, so that an error below, which the event loop logs, does not end the checks.
        self._scan = asyncio.get_running_loop().call_later(interval_s, self._check_periodically)
        self._brokers.remove_silent()
        self._reached.check(self._now_ms(), self.limits.reached)
        if self._access is not None:
            self._access.check()
        if self._tls is not None:
            self._tls.reload()
        if self._certificate is not None:
            self._certificate.check(self._now_ms())

    def _ordered_topics(self) -> bytes:
        """Return the body of the response to a registration."""
        if not self.settings.return_order_topic_config_to_broker:
            return b""
        ordered = self.kv_configs.namespace(ORDER_TOPIC_CONFIG)
        return b"" if ordered is None else encode_body(KvTable(ordered))

    # Routes and topics

    def _route(self, _: Connection, request: Command) -> Command:
        topic = headers.GetRouteInfoRequest.from_ext_fields(request.ext_fields).topic
        if self._routes_from_ms > self._now_ms():
            # Not TOPIC_NOT_EXIST: with another error a client keeps the route that it has.
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "name server not ready")
        if self._routes_revision != self.table.revision:
            self._routes.clear()
            self._routes_revision = self.table.revision
        body = self._routes.get(topic)
        if body is None:
            route = self.table.route(topic)
            if route is None:
                raise RequestRefused(
                    ResponseCode.TOPIC_NOT_EXIST,
                    f"No topic route info in name server for the topic: {topic[:NAME_CHARACTERS_MAX]}",
                )
            body = self._routes[topic] = encode_body(self._with_order(topic, route))
        return response_to(request, ResponseCode.SUCCESS, body=body)

    def _with_order(self, topic: str, route: TopicRoute) -> TopicRoute:
        if not self.settings.order_message_enable:
            return route
        return replace(route, order_topic_conf=self.kv_configs.get(ORDER_TOPIC_CONFIG, topic))

    async def _all_topics(self, _: Connection, request: Command) -> Command:
        if not self.settings.enable_all_topic_list:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")
        return await self._tables.answer(request, self.table.entry_count, self.table.topics)

    @cached_property
    def _tables(self) -> WholeTables:
        from orbitlog.remoting.whole_tables import WholeTables  # a start answers no such request

        return WholeTables()

    async def _topics_of_cluster(self, _: Connection, request: Command) -> Command:
        if not self.settings.enable_topic_list:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")
        cluster = headers.ClusterRequest.from_ext_fields(request.ext_fields).cluster
        return await self._tables.answer(request, self.table.entry_count, lambda: self.table.topics_of_cluster(cluster))

    def _listed(self, topics: Callable[[], TopicList]) -> Callable[[Connection, Command], Command]:
        def handle(_: Connection, request: Command) -> Command:
            if not self.settings.enable_topic_list:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")
            return _success(request, topics())

        return handle

    def _delete_topic(self, connection: Connection, request: Command) -> Command:
        header = headers.DeleteTopicRequest.from_ext_fields(request.ext_fields)
        self.table.delete_topic(header.topic, header.cluster)
        log.info("topic %.255s deleted by %s", header.topic, connection.peer)
        return _success(request)

    def _wipe_write_permission(self, connection: Connection, request: Command) -> Command:
        header = headers.BrokerNameRequest.from_ext_fields(request.ext_fields)
        count = self.table.wipe_write_permission(header.broker_name)
        log.info("write permission of %d topics of %.255s removed by %s", count, header.broker_name, connection.peer)
        return _success(request, header=headers.WipeWritePermissionResponse(topic_count=count))

    def _add_write_permission(self, connection: Connection, request: Command) -> Command:
        header = headers.BrokerNameRequest.from_ext_fields(request.ext_fields)
        count = self.table.add_write_permission(header.broker_name)
        log.info("write permission of %d topics of %.255s set by %s", count, header.broker_name, connection.peer)
        return _success(request, header=headers.AddWritePermissionResponse(topic_count=count))

    # Key-value configs and settings

    def _put_kv(self, connection: Connection, request: Command) -> Command:
        header = headers.PutKvConfigRequest.from_ext_fields(request.ext_fields)
        self.kv_configs.put(header.namespace, header.key, header.value)
        self._routes.clear()
        log.info("%s of namespace %s set by %s", header.key, header.namespace, connection.peer)
        return _success(request)

    def _get_kv(self, _: Connection, request: Command) -> Command:
        header = headers.KvConfigRequest.from_ext_fields(request.ext_fields)
        value = self.kv_configs.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, remark)
        return _success(request, header=headers.KvConfigResponse(value=value))

    def _delete_kv(self, connection: Connection, request: Command) -> Command:
        header = headers.KvConfigRequest.from_ext_fields(request.ext_fields)
        self.kv_configs.delete(header.namespace, header.key)
        self._routes.clear()
        log.info("%.255s of namespace %.255s deleted by %s", header.key, header.namespace, connection.peer)
        return _success(request)

    def _kv_namespace(self, _: Connection, request: Command) -> Command:
        header = headers.NamespaceRequest.from_ext_fields(request.ext_fields)
        values = self.kv_configs.namespace(header.namespace)
        if values is None:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return _success(request, KvTable(values))

    def _refuse_settings(self, connection: Connection, _: Command) -> Command:
        log.warning("refused a change of settings by %s: requests cannot change the name server's", connection.peer)
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            "requests cannot change settings of the name server; change its namesrv.conf and restart it",
        )

    def _show_settings(self, _: Connection, request: Command) -> Command:
        # The port that a client reached: port 0 in the settings stands for any free one.
        texts = {**shown_settings(self.settings.texts()), "listenPort": str(self.address[1])}
        texts |= {f"limitReached_{key}": str(count) for key, count in self.limits.reached.items() if key in texts}
        lines = [f"{key}={text}\n" for key, text in sorted(texts.items()) if key not in _PRIVATE_SETTINGS]
        return response_to(request, ResponseCode.SUCCESS, body="".join(lines).encode())


def _success(request: Command, body: JsonRecord | None = None, header: Header | None = None) -> Command:
    return response_to(
        request,
        ResponseCode.SUCCESS,
        ext_fields=None if header is None else header.to_ext_fields(),
        body=b"" if body is None else encode_body(body),
    )


def _load_access(settings: NameServerSettings, now_ms: Callable[[], int]) -> AccessControl | None:
    """Return the access control that settings ask for; None if none is switched on."""
    options = access_options(settings.access, None, os.environ)
    if not options.is_on:
        return None
    from orbitlog.nameserver.nameserver_access import load_access_control

    return load_access_control(options, now_ms)


def _load_tls(settings: NameServerSettings) -> ServerTls | None:
    """Return TLS of the port; None if it is off."""
    options = check_tls(settings.tls)
    if options is None:
        return None
    from orbitlog.remoting.tls.tls_loading import load_server_tls

    return load_server_tls(options)
