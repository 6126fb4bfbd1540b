"""Administration of a cluster: topics, groups, progress, offsets, messages; typed results.

Mirrors the everyday part of Java `DefaultMQAdminExt`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitlog.client.connection.addresses import is_secured, parse_addresses
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.namespaces import topic_name
from orbitlog.client.connection.routes import Routes
from orbitlog.errors import BrokerRefused, ClientError, FormatError, NoRoute
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.route_bodies import ClusterInfo
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

# Headers and bodies are imported by the methods that need them: a class takes up to a millisecond to create, and there
# are two hundred, so a command that sends one request starts in half the time.
if TYPE_CHECKING:
    import ssl
    from datetime import datetime

    from orbitlog.access.credentials import Credentials
    from orbitlog.client.connection.client_tls import TlsChoice
    from orbitlog.client.consumer.received import Received
    from orbitlog.formats.tables.group_config import GroupConfig
    from orbitlog.formats.tables.topic_config import TopicConfig
    from orbitlog.wire.bodies.queue_bodies import TopicOffset

_READ_WRITE = 6
_FOREVER_MS = 2**63 - 1
_LOOKUP_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """Progress of a group in one queue: its committed offset and the end of the queue.

    Example:
        for progress in await mq.admin.progress("billing", "Orders"):
            print(progress.queue, progress.committed, progress.lag)
    """

    queue: MessageQueue
    committed: int
    end: int

    @property
    def lag(self) -> int:
        """The number of messages that the group has not consumed yet."""
        return max(0, self.end - self.committed)


class Administration:
    """Administration of a cluster, available as `mq.admin`.

    Example:
        print(await mq.admin.topics())
        print(await mq.admin.brokers())
    """

    def __init__(self, link: ClusterLink, routes: Routes) -> None:
        self._link = link
        self._routes = routes

    @property
    def link(self) -> ClusterLink:
        """The link to the cluster, for requests without a method here."""
        return self._link

    @property
    def routes(self) -> Routes:
        """The route cache."""
        return self._routes

    # The cluster

    async def cluster(self) -> ClusterInfo:
        """Return the brokers and clusters registered with the name server.

        Example:
            for name, broker in (await mq.admin.cluster()).brokers.items():
                print(name, broker.addresses)
        """
        answer = await self._link.invoke_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_body(ClusterInfo, answer.body)

    async def brokers(self) -> dict[str, str]:
        """Return the address of every master by broker name.

        Example:
            address_of = await mq.admin.brokers()
        """
        return {name: data.addresses[0] for name, data in (await self.cluster()).brokers.items() if 0 in data.addresses}

    # Topics

    async def topics(self) -> list[str]:
        """Return the names of all topics.

        Example:
            assert "Orders" in await mq.admin.topics()
        """
        from orbitlog.wire.bodies.list_bodies import TopicList

        answer = await self._link.invoke_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(decode_body(TopicList, answer.body).topics)

    async def topic_configs(self, broker: str) -> dict[str, TopicConfig]:
        """Return the configuration of every topic at the broker with this address.

        Example:
            for broker in (await mq.admin.brokers()).values():
                print((await mq.admin.topic_configs(broker))["Orders"].write_queue_count)
        """
        from orbitlog.formats.tables.topic_config import TopicTable

        answer = await self._link.invoke(broker, RequestCode.GET_ALL_TOPIC_CONFIG, seconds=_LOOKUP_SECONDS)
        return dict(decode_body(TopicTable, answer.body).topics)

    async def create_topic(
        self, topic: str, queues: int = 8, *, permission: int = _READ_WRITE, ordered: bool = False
    ) -> None:
        """Create or change a topic at every broker.

        Example:
            await mq.admin.create_topic("Orders", 8)
        """
        from orbitlog.wire.admin_headers import CreateTopicRequest

        topic_name(topic)
        if queues < 1:
            raise ClientError(f"invalid queue count {queues}: must be at least 1")
        header = CreateTopicRequest(
            topic=topic,
            default_topic=names.AUTO_CREATE_TOPIC,
            read_queue_count=queues,
            write_queue_count=queues,
            permission=permission,
            filter_type="SINGLE_TAG",
            sys_flag=0,
            ordered=ordered,
        )
        for address in (await self._masters()).values():
            await self._link.invoke(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic at every broker, then at the name servers.

        Example:
            await mq.admin.delete_topic("Mistakes")
        """
        from orbitlog.wire.nameserver_headers import DeleteTopicRequest

        header = DeleteTopicRequest(topic=topic)
        for address in (await self._masters()).values():
            await self._link.invoke(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        for address in self._link.name_servers:
            await self._link.invoke(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the minimum and maximum offset of each queue of a topic.

        Example:
            for queue, bounds in (await mq.admin.topic_offsets("Orders")).items():
                print(queue.queue_id, bounds)
        """
        from orbitlog.wire.bodies.queue_bodies import TopicStats
        from orbitlog.wire.nameserver_headers import TopicRequest

        offsets: dict[MessageQueue, TopicOffset] = {}
        for address in await self._masters_of(topic):
            answer = await self._link.invoke(address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(topic=topic))
            offsets |= decode_body(TopicStats, answer.body).offsets
        return dict(sorted(offsets.items()))

    # Groups

    async def groups(self, broker: str) -> dict[str, GroupConfig]:
        """Return the configuration of every group at the broker with this address.

        Example:
            for broker in (await mq.admin.brokers()).values():
                print(sorted(await mq.admin.groups(broker)))
        """
        from orbitlog.formats.tables.group_config import GroupTable

        answer = await self._link.invoke(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, seconds=_LOOKUP_SECONDS)
        return dict(decode_body(GroupTable, answer.body).groups)

    async def create_group(self, config: GroupConfig) -> None:
        """Create or change a group at every broker.

        Example:
            from orbitlog.formats.tables.group_config import GroupConfig

            await mq.admin.create_group(GroupConfig("billing", retry_times_max=3))
        """
        for address in (await self._masters()).values():
            await self._link.invoke(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config))

    async def delete_group(self, group: str, *, forget_offsets: bool = True) -> None:
        """Delete a group at every broker; with `forget_offsets`, also its committed offsets.

        Example:
            await mq.admin.delete_group("mistaken")
        """
        from orbitlog.wire.admin_headers import DeleteGroupRequest

        header = DeleteGroupRequest(group=group, clean_offset=forget_offsets, remove_offset=forget_offsets)
        for address in (await self._masters()).values():
            await self._link.invoke(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """Return the progress of a group in every queue, over all brokers.

        Example:
            print(sum(progress.lag for progress in await mq.admin.progress("billing", "Orders")))
        """
        from orbitlog.wire.admin_headers import ConsumeStatsRequest
        from orbitlog.wire.bodies.queue_bodies import ConsumeStats

        progress: list[QueueProgress] = []
        header = ConsumeStatsRequest(group=group, topic=topic)
        for address in (await self._masters()).values():
            answer = await self._link.invoke(address, RequestCode.GET_CONSUME_STATS, header, seconds=_LOOKUP_SECONDS)
            stats = decode_body(ConsumeStats, answer.body)
            progress += [
                QueueProgress(queue, offsets.consumer_queue_offset, offsets.broker_queue_offset)
                for queue, offsets in stats.offsets.items()
            ]
        return sorted(progress, key=lambda entry: entry.queue)

    async def reset_offsets(self, group: str, topic: str, to: datetime | int | None) -> dict[MessageQueue, int]:
        """Reset a group to a timestamp, a queue offset, or the end (None); return the new offsets.

        Example:
            from datetime import UTC, datetime, timedelta

            await mq.admin.reset_offsets("billing", "Orders", datetime.now(UTC) - timedelta(hours=1))
        """
        from orbitlog.client.admin.offset_reset import OffsetReset, Target

        reset = OffsetReset(self._link, self._routes)
        target: Target = "latest" if to is None else to
        done = await reset.apply(group, await reset.plan(group, topic, target), target)
        return {entry.queue: entry.target for entry in done}

    # Messages

    async def message(self, message_id: str, topic: str | None = None) -> Received | None:
        """Return a message by the producer's id (needs the topic) or the broker's id, or None.

        Example:
            receipt = await mq.send("Orders", "one")
            message = await mq.admin.message(receipt.offset_message_id)
        """
        from orbitlog.client.consumer.received import Received, decode_pulled
        from orbitlog.formats.records.message_id import parse_offset_message_id
        from orbitlog.wire.consume_headers import ViewMessageRequest

        if topic is not None:
            messages = [message async for message in self.find(topic, message_id, count=1, by_id=True)]
            if messages:
                return messages[0]
        try:
            offset_id = parse_offset_message_id(message_id)
        except FormatError as error:
            if topic is not None:
                return None
            raise ClientError(f"{error.problem}; an id generated by a producer needs the topic") from None
        header = ViewMessageRequest(physical_offset=offset_id.physical_offset)
        try:
            answer = await self._link.invoke(str(offset_id.store_host), RequestCode.VIEW_MESSAGE_BY_ID, header)
        except BrokerRefused:
            return None
        return next((Received(record, "") for record in decode_pulled(answer.body)), None)

    async def find(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        count: int = 32,
        by_id: bool = False,
    ) -> AsyncIterator[Received]:
        """Yield messages with a key, over all brokers of the topic; with `by_id`, the key is a producer's message id.

        Example:
            async for message in mq.admin.find("Orders", "42"):
                print(message.text)
        """
        from orbitlog.client.consumer.received import Received, decode_pulled
        from orbitlog.wire.consume_headers import QueryMessageRequest

        header = QueryMessageRequest(
            topic=topic,
            key=key,
            count_max=count,
            begin_timestamp_ms=0 if begin is None else int(begin.timestamp() * 1000),
            end_timestamp_ms=_FOREVER_MS if end is None else int(end.timestamp() * 1000),
            unique_key=by_id,
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        for address in await self._masters_of(topic):
            answer = await self._link.invoke(
                address, RequestCode.QUERY_MESSAGE, header, seconds=_LOOKUP_SECONDS, accept=accept
            )
            for message in decode_pulled(answer.body):
                received = Received(message, "")
                if key in received.keys or key == received.message_id:
                    yield received

    async def _masters(self) -> dict[str, str]:
        brokers = await self.brokers()
        if not brokers:
            raise NoRoute(f"no broker has registered with {', '.join(self._link.name_servers)}")
        return brokers

    async def _masters_of(self, topic: str) -> Sequence[str]:
        route = await self._routes.refresh(topic)
        return [addresses[0] for addresses in route.brokers.values() if 0 in addresses]


@asynccontextmanager
async def administer(
    address: str, *, credentials: Credentials | None = None, tls: TlsChoice | ssl.SSLContext | None = None
) -> AsyncIterator[Administration]:
    """Open a connection for administration only: no producer, consumer or heartbeats, and half of the start-up time."""
    link = ClusterLink(parse_addresses(address), _refuse_request, credentials, _tls_context(tls, address))
    try:
        yield Administration(link, Routes(link))
    finally:
        await link.close()


def _tls_context(tls: TlsChoice | ssl.SSLContext | None, address: str) -> ssl.SSLContext | None:
    if tls is None and not is_secured(address):
        return None
    from orbitlog.client.connection.client_tls import tls_context

    return tls_context(tls, address)


def _refuse_request(_: Connection, request: Command) -> Answer:
    return not_supported(request)
