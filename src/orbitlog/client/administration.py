"""Administration of a cluster: topics, groups, progress, offsets, messages; typed results.

Mirrors Java `DefaultMQAdminExt`, as far as people use it every day.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from orbitlog.client.cluster_link import ClusterLink
from orbitlog.client.group_link import GroupLink
from orbitlog.client.received import Received, decode_pulled
from orbitlog.client.routes import Routes
from orbitlog.errors import BrokerRefused, NoRoute
from orbitlog.formats import names
from orbitlog.formats.group_config import GroupConfig, GroupTable
from orbitlog.formats.message_id import parse_offset_message_id
from orbitlog.formats.topic_config import TopicConfig, TopicTable
from orbitlog.wire.admin_headers import (
    ConsumeStatsRequest,
    CreateTopicRequest,
    DeleteGroupRequest,
    ResetOffsetRequest,
)
from orbitlog.wire.bodies.body_json import MessageQueue, decode_body, encode_body
from orbitlog.wire.bodies.list_bodies import TopicList
from orbitlog.wire.bodies.queue_bodies import ConsumeStats, QueueOffsetTable, TopicOffset, TopicStats
from orbitlog.wire.bodies.route_bodies import ClusterInfo
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.consume_headers import QueryMessageRequest, ViewMessageRequest
from orbitlog.wire.nameserver_headers import DeleteTopicRequest, TopicRequest

_READ_WRITE = 6
_FOREVER_MS = 2**63 - 1
_LOOKUP_SECONDS = 10.0
_END = -1


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a group is in one queue."""

    queue: MessageQueue
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


class Administration:
    """What operators ask and change."""

    def __init__(self, link: ClusterLink, routes: Routes) -> None:
        self._link = link
        self._routes = routes

    @property
    def link(self) -> ClusterLink:
        """Where requests go that have no method here."""
        return self._link

    # The cluster

    async def cluster(self) -> ClusterInfo:
        """Return brokers and clusters as the name server knows them."""
        answer = await self._link.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return decode_body(ClusterInfo, answer.body)

    async def brokers(self) -> dict[str, str]:
        """Return the address of every master by its name."""
        return {name: data.addresses[0] for name, data in (await self.cluster()).brokers.items() if 0 in data.addresses}

    # Topics

    async def topics(self) -> list[str]:
        answer = await self._link.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(decode_body(TopicList, answer.body).topics)

    async def topic_configs(self, broker: str) -> dict[str, TopicConfig]:
        """Return every topic of one broker, given by its address."""
        answer = await self._link.ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, seconds=_LOOKUP_SECONDS)
        return dict(decode_body(TopicTable, answer.body).topics)

    async def create_topic(
        self, topic: str, queues: int = 8, *, permission: int = _READ_WRITE, ordered: bool = False
    ) -> None:
        """Make a topic, or change it, at every broker."""
        names.check_topic(topic)
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
        for address in (await self._some_brokers()).values():
            await self._link.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic at every broker, then at the name servers."""
        header = DeleteTopicRequest(topic=topic)
        for address in (await self._some_brokers()).values():
            await self._link.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        for address in self._link.name_servers:
            await self._link.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return where each queue of a topic begins and ends."""
        found: dict[MessageQueue, TopicOffset] = {}
        for address in await self._masters_of(topic):
            answer = await self._link.ask(address, RequestCode.GET_TOPIC_STATS_INFO, TopicRequest(topic=topic))
            found |= decode_body(TopicStats, answer.body).offsets
        return dict(sorted(found.items()))

    # Groups

    async def groups(self, broker: str) -> dict[str, GroupConfig]:
        """Return every group of one broker, given by its address."""
        answer = await self._link.ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, seconds=_LOOKUP_SECONDS)
        return dict(decode_body(GroupTable, answer.body).groups)

    async def create_group(self, config: GroupConfig) -> None:
        for address in (await self._some_brokers()).values():
            await self._link.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, encode_body(config))

    async def delete_group(self, group: str, *, forget_offsets: bool = True) -> None:
        header = DeleteGroupRequest(group=group, clean_offset=forget_offsets, remove_offset=forget_offsets)
        for address in (await self._some_brokers()).values():
            await self._link.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def progress(self, group: str, topic: str | None = None) -> list[QueueProgress]:
        """Return how far a group is in every queue, over all brokers."""
        found: list[QueueProgress] = []
        header = ConsumeStatsRequest(group=group, topic=topic)
        for address in (await self._some_brokers()).values():
            answer = await self._link.ask(address, RequestCode.GET_CONSUME_STATS, header, seconds=_LOOKUP_SECONDS)
            stats = decode_body(ConsumeStats, answer.body)
            found += [
                QueueProgress(queue, each.consumer_queue_offset, each.broker_queue_offset)
                for queue, each in stats.offsets.items()
            ]
        return sorted(found, key=lambda each: each.queue)

    async def reset_offsets(self, group: str, topic: str, to: datetime | int | None) -> dict[MessageQueue, int]:
        """Let a group go on at a moment (or a queue offset, or the end if None); returns the new offsets."""
        moved: dict[MessageQueue, int] = {}
        header = ResetOffsetRequest(
            topic=topic,
            group=group,
            timestamp_ms=int(to.timestamp() * 1000) if isinstance(to, datetime) else _END,
            queue_offset=to if isinstance(to, int) else None,
            force=True,
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
        for name, addresses in (await self._routes.refresh(topic)).brokers.items():
            if 0 not in addresses:
                continue
            answer = await self._link.ask(
                addresses[0], RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header, accept=accept
            )
            if answer.code == ResponseCode.SUCCESS:
                moved |= decode_body(QueueOffsetTable, answer.body).offsets
            else:
                moved |= await self._reset_while_away(group, topic, name, to)
        return moved

    async def _reset_while_away(
        self, group: str, topic: str, broker_name: str, to: datetime | int | None
    ) -> dict[MessageQueue, int]:
        """Set the offsets of a group of which nobody is there: brokers of 4.9 leave that to the tools."""
        link = GroupLink(self._link, self._routes, group, "")
        moved: dict[MessageQueue, int] = {}
        for queue in (await self._routes.of(topic)).read_queues:
            if queue.broker_name == broker_name:
                if isinstance(to, datetime):
                    moved[queue] = await link.offset_at(queue, to)
                else:
                    moved[queue] = await link.max_offset(queue) if to is None else to
                await link.commit_now(queue, moved[queue])
        return moved

    # Messages

    async def message(self, message_id: str, topic: str | None = None) -> Received | None:
        """Find a message by the id that its sender gave (needs the topic), or by the broker's."""
        if topic is not None:
            found = [each async for each in self.find(topic, message_id, count=1, by_id=True)]
            if found:
                return found[0]
        place = parse_offset_message_id(message_id)
        header = ViewMessageRequest(physical_offset=place.physical_offset)
        try:
            answer = await self._link.ask(str(place.store_host), RequestCode.VIEW_MESSAGE_BY_ID, header)
        except BrokerRefused:
            return None
        return next((Received(each, "") for each in decode_pulled(answer.body)), None)

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
        """Find messages by a key, over all brokers of the topic."""
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
            answer = await self._link.ask(
                address, RequestCode.QUERY_MESSAGE, header, seconds=_LOOKUP_SECONDS, accept=accept
            )
            for message in decode_pulled(answer.body):
                received = Received(message, "")
                if key in received.keys or key == received.message_id:
                    yield received

    async def _some_brokers(self) -> dict[str, str]:
        brokers = await self.brokers()
        if not brokers:
            raise NoRoute(f"no broker has registered with {', '.join(self._link.name_servers)}")
        return brokers

    async def _masters_of(self, topic: str) -> Sequence[str]:
        route = await self._routes.refresh(topic)
        return [addresses[0] for addresses in route.brokers.values() if 0 in addresses]
