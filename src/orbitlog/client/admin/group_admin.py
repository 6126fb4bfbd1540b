"""What is asked about consumer groups: who is in them, how far they are, what a member does; and moving them.

Mirrors the group calls of Java `DefaultMQAdminExtImpl`. A group is at the brokers of its retry topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitlog.client.admin.name_server_admin import NameServerAdmin
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.errors import BrokerRefused, NoRoute
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.consume_headers import (
    ConsumerGroupRequest,
    ConsumerRunningInfoRequest,
    GetMaxOffsetRequest,
    QueryConsumerOffsetRequest,
    QueueOffsetResponse,
    SearchOffsetRequest,
    TopicQueueRequest,
    UpdateConsumerOffsetRequest,
)

if TYPE_CHECKING:
    from orbitlog.client.connection.running_info import RunningInfo
    from orbitlog.wire.bodies.client_bodies import ConsumerConnection, ProducerConnection
    from orbitlog.wire.bodies.queue_bodies import ConsumeOffset, ConsumeStats

_SECONDS = 5.0
_NOWHERE = BrokerRefused(206, "the group has no offsets: it never consumed anything here")


@dataclass(frozen=True, slots=True)
class GroupStats:
    """How far a group is in each queue, and how fast it consumes."""

    offsets: Mapping[MessageQueue, ConsumeOffset]
    consume_tps: float

    @property
    def total_diff(self) -> int:
        return sum(each.broker_queue_offset - each.consumer_queue_offset for each in self.offsets.values())


class GroupAdmin:
    """Questions about groups, over all brokers that know them."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._name_servers = NameServerAdmin(link)

    async def brokers_of(self, topic: str) -> dict[str, str]:
        """Return the brokers of a topic: the master of each name, or a copy where there is no master."""
        route = await self._name_servers.route(topic)
        return {data.broker_name: data.addresses[min(data.addresses)] for data in route.brokers if data.addresses}

    async def _any_broker_of(self, topic: str) -> str:
        for address in (await self.brokers_of(topic)).values():
            return address
        raise NoRoute(f"topic {topic} has a route, and no broker in it")

    async def stats(self, group: str, topic: str | None = None) -> GroupStats:
        """Return how far a group is in every queue; raises `BrokerRefused` if nobody knows it."""
        from orbitlog.wire.admin_headers import ConsumeStatsRequest
        from orbitlog.wire.bodies.queue_bodies import ConsumeStats

        header = ConsumeStatsRequest(group=group, topic=topic)
        offsets: dict[MessageQueue, ConsumeOffset] = {}
        tps = 0.0
        for address in (await self.brokers_of(names.retry_topic(group))).values():
            answer = await self._link.ask(address, RequestCode.GET_CONSUME_STATS, header, seconds=_SECONDS * 3)
            told: ConsumeStats = decode_body(ConsumeStats, answer.body)
            offsets |= told.offsets
            tps += told.consume_tps
        if not offsets:
            raise _NOWHERE
        return GroupStats(dict(sorted(offsets.items())), tps)

    async def connections(self, group: str, address: str | None = None) -> ConsumerConnection:
        """Return the members of a group; raises `BrokerRefused` with code 206 if none is there."""
        from orbitlog.wire.bodies.client_bodies import ConsumerConnection

        if address is None:
            address = await self._any_broker_of(names.retry_topic(group))
        header = ConsumerGroupRequest(group=group)
        answer = await self._link.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, seconds=_SECONDS)
        return decode_body(ConsumerConnection, answer.body)

    async def producers(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group, as one broker of a topic knows them."""
        from orbitlog.wire.admin_headers import ProducerGroupRequest
        from orbitlog.wire.bodies.client_bodies import ProducerConnection

        address = await self._any_broker_of(topic)
        header = ProducerGroupRequest(group=group)
        answer = await self._link.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, seconds=_SECONDS)
        return decode_body(ProducerConnection, answer.body)

    async def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> RunningInfo:
        """Return what a member says of itself."""
        from orbitlog.client.connection.running_info import RunningInfo

        address = await self._any_broker_of(names.retry_topic(group))
        header = ConsumerRunningInfoRequest(group=group, client_id=client_id, with_stacks=with_stacks)
        answer = await self._link.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, seconds=_SECONDS * 4)
        return decode_body(RunningInfo, answer.body)

    # Offsets

    async def offset_at(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the first offset stored at or after a moment; -1 is the end."""
        if timestamp_ms == -1:
            return await self.max_offset(address, queue)
        header = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms)
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, header)

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        header = TopicQueueRequest(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, header)

    async def committed(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Return how far a group is in a queue; None if it never was there."""
        header = QueryConsumerOffsetRequest(
            group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = await self._link.ask(address, code, header, seconds=_SECONDS, accept=accept)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset

    async def commit(self, address: str, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Say for a group that it has consumed up to here; a member that is running says otherwise later."""
        header = UpdateConsumerOffsetRequest(
            group=group, topic=queue.topic, queue_id=queue.queue_id, commit_queue_offset=queue_offset
        )
        await self._link.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, seconds=_SECONDS)

    async def reset(
        self,
        address: str,
        group: str,
        topic: str,
        *,
        timestamp_ms: int,
        queue_id: int = -1,
        offset_to: int | None = None,
    ) -> dict[MessageQueue, int] | None:
        """Have a broker move a group and tell its members; None if it leaves a group without members to the tools."""
        from orbitlog.wire.admin_headers import ResetOffsetRequest
        from orbitlog.wire.bodies.queue_bodies import QueueOffsetTable

        header = ResetOffsetRequest(
            topic=topic, group=group, timestamp_ms=timestamp_ms, queue_id=queue_id, queue_offset=offset_to, force=True
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        answer = await self._link.ask(address, code, header, seconds=_SECONDS, accept=accept)
        if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        return dict(decode_body(QueueOffsetTable, answer.body).offsets)

    async def _offset(
        self, address: str, code: RequestCode, header: SearchOffsetRequest | GetMaxOffsetRequest | TopicQueueRequest
    ) -> int:
        answer = await self._link.ask(address, code, header, seconds=_SECONDS)
        return QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset
