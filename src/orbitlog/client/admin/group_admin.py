"""Administration of consumer groups: members, progress, running info, offset resets.

Mirrors the group calls of Java `DefaultMQAdminExtImpl`. A group is known to the brokers of its retry topic.
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
    ConsumeDirectlyRequest,
    ConsumerGroupRequest,
    ConsumerRunningInfoRequest,
    GetMaxOffsetRequest,
    QueryConsumerOffsetRequest,
    QueueOffsetResponse,
    SearchOffsetRequest,
    TimestampResponse,
    TopicQueueRequest,
    UpdateConsumerOffsetRequest,
)

if TYPE_CHECKING:
    from orbitlog.client.connection.running_info import RunningInfo
    from orbitlog.client.consumer.received import Received
    from orbitlog.wire.bodies.client_bodies import ConsumeDirectlyResult, ConsumerConnection, ProducerConnection
    from orbitlog.wire.bodies.queue_bodies import ConsumeOffset, ConsumeStats
    from orbitlog.wire.command import Command
    from orbitlog.wire.header_codec import Header

_SECONDS = 5.0
_NO_OFFSETS = BrokerRefused(206, "the group has no committed offsets")


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Progress of a group in each queue, and its consume rate."""

    offsets: Mapping[MessageQueue, ConsumeOffset]
    consume_tps: float

    @property
    def total_diff(self) -> int:
        return sum(entry.broker_queue_offset - entry.consumer_queue_offset for entry in self.offsets.values())


class GroupAdmin:
    """Administration requests about groups, over all brokers that know them."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._name_servers = NameServerAdmin(link)

    async def brokers_of(self, topic: str) -> dict[str, str]:
        """Return the address of each broker of a topic: the master, or a replica without one."""
        route = await self._name_servers.route(topic)
        return {data.broker_name: data.addresses[min(data.addresses)] for data in route.brokers if data.addresses}

    async def _any_broker_of(self, topic: str) -> str:
        for address in (await self.brokers_of(topic)).values():
            return address
        raise NoRoute(f"the route of topic {topic} has no broker")

    async def stats(self, group: str, topic: str | None = None) -> GroupStats:
        """Return the progress of a group in every queue; raise `BrokerRefused` if it has no committed offsets."""
        from orbitlog.wire.admin_headers import ConsumeStatsRequest
        from orbitlog.wire.bodies.queue_bodies import ConsumeStats

        header = ConsumeStatsRequest(group=group, topic=topic)
        offsets: dict[MessageQueue, ConsumeOffset] = {}
        tps = 0.0
        for address in (await self.brokers_of(names.retry_topic(group))).values():
            answer = await self._link.invoke(address, RequestCode.GET_CONSUME_STATS, header, seconds=_SECONDS * 3)
            stats: ConsumeStats = decode_body(ConsumeStats, answer.body)
            offsets |= stats.offsets
            tps += stats.consume_tps
        if not offsets:
            raise _NO_OFFSETS
        return GroupStats(dict(sorted(offsets.items())), tps)

    async def connections(self, group: str, address: str | None = None) -> ConsumerConnection:
        """Return the members of a group; raise `BrokerRefused` with CONSUMER_NOT_ONLINE if it has none."""
        from orbitlog.wire.bodies.client_bodies import ConsumerConnection

        if address is None:
            address = await self._any_broker_of(names.retry_topic(group))
        header = ConsumerGroupRequest(group=group)
        answer = await self._link.invoke(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, seconds=_SECONDS)
        return decode_body(ConsumerConnection, answer.body)

    async def producers(self, group: str, topic: str) -> ProducerConnection:
        """Return the producers of a group that are connected to one broker of a topic."""
        from orbitlog.wire.admin_headers import ProducerGroupRequest
        from orbitlog.wire.bodies.client_bodies import ProducerConnection

        address = await self._any_broker_of(topic)
        header = ProducerGroupRequest(group=group)
        answer = await self._link.invoke(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, seconds=_SECONDS)
        return decode_body(ProducerConnection, answer.body)

    async def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> RunningInfo:
        """Return the running info of a member."""
        from orbitlog.client.connection.running_info import RunningInfo

        address = await self._any_broker_of(names.retry_topic(group))
        header = ConsumerRunningInfoRequest(group=group, client_id=client_id, with_stacks=with_stacks)
        answer = await self._link.invoke(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, seconds=_SECONDS * 4)
        return decode_body(RunningInfo, answer.body)

    async def consume_directly(
        self, address: str, group: str, client_id: str, message: Received
    ) -> ConsumeDirectlyResult:
        """Have one member consume a message now; its offset is not committed."""
        from orbitlog.wire.bodies.client_bodies import ConsumeDirectlyResult

        header = ConsumeDirectlyRequest(
            group=group, client_id=client_id, message_id=message.offset_message_id, topic=message.stored.topic
        )
        answer = await self._link.invoke(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, seconds=_SECONDS * 4)
        return decode_body(ConsumeDirectlyResult, answer.body)

    # Offsets

    async def offset_at(self, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a timestamp; -1 means the end of the queue."""
        if timestamp_ms == -1:
            return await self.max_offset(address, queue)
        header = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms)
        return await self._offset(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        header = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(address, RequestCode.GET_MAX_OFFSET, header)

    async def earliest_time_ms(self, address: str, queue: MessageQueue) -> int:
        """Return when the first message of a queue was stored; -1 if it is empty."""
        header = TopicQueueRequest(topic=queue.topic, queue_id=queue.queue_id)
        answer = await self._link.invoke(address, RequestCode.GET_EARLIEST_MSG_STORETIME, header, seconds=_SECONDS)
        return TimestampResponse.from_ext_fields(answer.ext_fields).timestamp_ms

    async def min_offset(self, address: str, queue: MessageQueue) -> int:
        header = TopicQueueRequest(topic=queue.topic, queue_id=queue.queue_id)
        return await self._offset(address, RequestCode.GET_MIN_OFFSET, header)

    async def committed(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Return the committed offset of a group in a queue, or None."""
        header = QueryConsumerOffsetRequest(
            group=group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        code, absent = RequestCode.QUERY_CONSUMER_OFFSET, ResponseCode.QUERY_NOT_FOUND
        answer = await self._answer_unless(absent, address, code, header)
        return None if answer is None else QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset

    async def commit(self, address: str, group: str, queue: MessageQueue, queue_offset: int) -> None:
        """Commit an offset for a group; running members overwrite it with their next commit."""
        header = UpdateConsumerOffsetRequest(
            group=group, topic=queue.topic, queue_id=queue.queue_id, commit_queue_offset=queue_offset
        )
        await self._link.invoke(address, RequestCode.UPDATE_CONSUMER_OFFSET, header, seconds=_SECONDS)

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
        """Have a broker reset a group and notify its members; None if it does not reset groups without members."""
        from orbitlog.wire.admin_headers import ResetOffsetRequest
        from orbitlog.wire.bodies.queue_bodies import QueueOffsetTable

        header = ResetOffsetRequest(
            topic=topic, group=group, timestamp_ms=timestamp_ms, queue_id=queue_id, queue_offset=offset_to, force=True
        )
        code, absent = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResponseCode.CONSUMER_NOT_ONLINE
        answer = await self._answer_unless(absent, address, code, header)
        return None if answer is None else dict(decode_body(QueueOffsetTable, answer.body).offsets)

    async def _answer_unless(
        self, absent: ResponseCode, address: str, code: RequestCode, header: Header
    ) -> Command | None:
        """Return the answer of a broker; None if it has the code `absent`."""
        accept = (ResponseCode.SUCCESS, absent)
        answer = await self._link.invoke(address, code, header, seconds=_SECONDS, accept=accept)
        return None if answer.code == absent else answer

    async def _offset(
        self, address: str, code: RequestCode, header: SearchOffsetRequest | GetMaxOffsetRequest | TopicQueueRequest
    ) -> int:
        answer = await self._link.invoke(address, code, header, seconds=_SECONDS)
        return QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset
