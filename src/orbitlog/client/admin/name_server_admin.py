"""Administration of name servers: routes, key-value configs, write permissions, settings.

Mirrors the calls of Java `MQClientAPIImpl` that take name servers' addresses. Changes are sent to every name server,
because name servers do not replicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitlog.client.admin.broker_admin import encode_settings, parse_settings
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.route_bodies import TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from orbitlog.wire.header_codec import Header

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


class NameServerAdmin:
    """Administration requests to name servers."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._link.name_servers

    async def route(self, topic: str) -> TopicRoute:
        """Return the full route of a topic; raise `BrokerRefused` with TOPIC_NOT_EXIST for an unknown topic."""
        from orbitlog.wire.nameserver_headers import GetRouteInfoRequest

        header = GetRouteInfoRequest(topic=topic, standard_json_only=True)
        answer = await self._link.invoke_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return decode_body(TopicRoute, answer.body)

    async def value(self, namespace: str, key: str) -> str | None:
        """Return one value of the key-value configs."""
        from orbitlog.wire.nameserver_headers import KvConfigRequest, KvConfigResponse

        header = KvConfigRequest(namespace=namespace, key=key)
        answer = await self._link.invoke_name_server(RequestCode.GET_KV_CONFIG, header)
        return KvConfigResponse.from_ext_fields(answer.ext_fields).value

    async def put_value(self, namespace: str, key: str, value: str) -> None:
        from orbitlog.wire.nameserver_headers import PutKvConfigRequest

        await self._invoke_all(RequestCode.PUT_KV_CONFIG, PutKvConfigRequest(namespace=namespace, key=key, value=value))

    async def delete_value(self, namespace: str, key: str) -> None:
        from orbitlog.wire.nameserver_headers import KvConfigRequest

        await self._invoke_all(RequestCode.DELETE_KV_CONFIG, KvConfigRequest(namespace=namespace, key=key))

    async def put_order(self, topic: str, order: str, *, whole_cluster: bool) -> None:
        """Set the queue order of an ordered topic, `broker-a:8;broker-b:8`: all of it, or the entry of one broker."""
        if not whole_cluster:
            from orbitlog.errors import BrokerRefused

            try:
                before = await self.value(ORDER_NAMESPACE, topic)
            except BrokerRefused as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
                before = None
            parts = dict(part.split(":", 1) for part in (before or "").split(";") if ":" in part)
            name, _, count = order.partition(":")
            order = ";".join(f"{broker}:{queues}" for broker, queues in (parts | {name: count}).items())
        await self.put_value(ORDER_NAMESPACE, topic, order)

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        from orbitlog.wire.nameserver_headers import DeleteTopicRequest

        await self._invoke_all(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRequest(topic=topic, cluster=cluster))

    async def wipe_write_permission(self, address: str, broker_name: str) -> int:
        """Remove the write permission of a broker; return the number of topics changed."""
        from orbitlog.wire.nameserver_headers import BrokerNameRequest, WipeWritePermissionResponse

        header = BrokerNameRequest(broker_name=broker_name)
        answer = await self._link.invoke(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return WipeWritePermissionResponse.from_ext_fields(answer.ext_fields).topic_count

    async def add_write_permission(self, address: str, broker_name: str) -> int:
        """Restore the write permission of a broker; return the number of topics changed."""
        from orbitlog.wire.nameserver_headers import AddWritePermissionResponse, BrokerNameRequest

        header = BrokerNameRequest(broker_name=broker_name)
        answer = await self._link.invoke(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return AddWritePermissionResponse.from_ext_fields(answer.ext_fields).topic_count

    async def settings(self, address: str) -> dict[str, str]:
        return parse_settings((await self._link.invoke(address, RequestCode.GET_NAMESRV_CONFIG)).body)

    async def change_settings(self, address: str, settings: Mapping[str, str]) -> None:
        await self._link.invoke(address, RequestCode.UPDATE_NAMESRV_CONFIG, None, encode_settings(settings))

    async def _invoke_all(self, code: RequestCode, header: Header) -> None:
        for address in self._link.name_servers:
            await self._link.invoke(address, code, header)
