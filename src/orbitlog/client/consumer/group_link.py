"""Requests of consumer group members to brokers: members, offsets, queue locks, pulls, redelivery.

Mirrors Java `MQClientAPIImpl`, `RemoteBrokerOffsetStore`, `RebalancePushImpl.computePullFromWhere`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import MASTER_ID, Routes
from orbitlog.client.consumer.pull_frames import PullFrames
from orbitlog.errors import BrokerRefused, ClientError, NoRoute, RemotingError, RequestTimeout
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire import consume_headers as headers
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.heartbeat_bodies import CheckClientRequestBody, SubscriptionData
from orbitlog.wire.bodies.list_bodies import ConsumerList
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.header_codec import Header

log = logging.getLogger(__name__)

PULL_COUNT = 32
SUSPEND_SECONDS = 15.0
PULL_SECONDS = 30.0

_COMMIT, _SUSPEND, _SUBSCRIPTION = 0x1, 0x2, 0x4
_NO_SQL = "set enablePropertyFilter=true at the broker, or filter by tags"
_LISTED = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
_PULL_CODES = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class StartFrom(StrEnum):
    """Where a group starts in a queue without a committed offset.

    Example:
        async with await mq.read("Orders", start=orbitlog.StartFrom.FIRST) as reader:
            print(reader.positions())
    """

    LAST = "last"
    FIRST = "first"


def start_of(value: StartFrom | datetime | str) -> StartFrom | datetime:
    """Return a valid start position; raise `ClientError` otherwise."""
    if isinstance(value, datetime):
        return value
    try:
        return StartFrom(value)
    except ValueError:
        raise ClientError(f"invalid start position {value!r:.80}: must be 'first', 'last' or a datetime") from None


@dataclass(frozen=True, slots=True)
class PullResult:
    """Result of a pull: records as stored, and the next queue offset."""

    body: bytes
    next_queue_offset: int
    min_queue_offset: int
    max_queue_offset: int
    offset_moved: bool
    suggested_broker_id: int = MASTER_ID
    code: int = ResponseCode.SUCCESS


class GroupLink:
    """Requests of one consumer group."""

    def __init__(self, link: ClusterLink, routes: Routes, group: str, client_id: str) -> None:
        self._link = link
        self._routes = routes
        self.group = group
        self.client_id = client_id
        self._pull_frames = PullFrames()

    async def members(self, topic: str) -> list[str]:
        """Return the sorted client ids of all members, from any broker of the topic."""
        header = headers.ConsumerGroupRequest(group=self.group)
        failure: RemotingError | NoRoute = NoRoute(f"topic {topic} has no broker")
        for addresses in (await self._routes.of(topic)).brokers.values():
            address = addresses.get(0) or next(iter(addresses.values()), None)
            if address is None:
                continue
            try:
                answer = await self._link.invoke(
                    address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, accept=_LISTED
                )
            except RemotingError as error:
                failure = error
                self._routes.suspect(topic)
                continue
            # A broker without members of the group, such as after a restart, answers with code 1 and no body.
            return sorted(decode_body(ConsumerList, answer.body).client_ids) if answer.body else []
        raise failure

    async def check(self, subscription: SubscriptionData) -> None:
        """Have a broker validate a filter expression; raise `BrokerRefused` if it is invalid or not supported."""
        body = encode_body(CheckClientRequestBody(self.client_id, self.group, subscription))
        for broker_name in (await self._routes.of(subscription.topic)).brokers:
            address = self._routes.address(broker_name)
            if address is not None:
                try:
                    await self._link.invoke(address, RequestCode.CHECK_CLIENT_CONFIG, None, body)
                except BrokerRefused as error:
                    # Brokers without property filters answer with the generic error code.
                    if error.code != ResponseCode.SYSTEM_ERROR:
                        raise
                    raise BrokerRefused(error.code, error.remark, advice=_NO_SQL) from None
                return

    async def warn_of_mismatch(self, subscriptions: Sequence[SubscriptionData]) -> None:
        """Warn if other members have other subscriptions: the broker keeps only one set, so messages would be lost."""
        from orbitlog.wire.bodies.client_bodies import ConsumerConnection

        route = next(filter(None, (self._routes.known(subscription.topic) for subscription in subscriptions)), None)
        address = next(filter(None, map(self._routes.address, route.brokers)), None) if route else None
        if address is None:
            return
        header = headers.ConsumerGroupRequest(group=self.group)
        try:
            answer = await self._link.invoke(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except (BrokerRefused, RemotingError):
            return  # usually: the group has no members
        registered = decode_body(ConsumerConnection, answer.body).subscriptions
        others = {_filter_of(entry) for topic, entry in registered.items() if not topic.startswith(names.RETRY_PREFIX)}
        if others and others != set(map(_filter_of, subscriptions)):
            filters = ", ".join(f"{topic} ({expression})" for topic, expression in sorted(others))
            log.warning(
                "%s: other members subscribe to %s; members of a group need equal subscriptions, or messages are lost",
                self.group,
                filters,
            )

    async def pull(  # noqa: PLR0917 - all parts of a pull
        self,
        queue: MessageQueue,
        queue_offset: int,
        subscription: SubscriptionData,
        commit_queue_offset: int | None = None,
        broker_id: int = MASTER_ID,
        count: int = PULL_COUNT,
        suspend_seconds: float = SUSPEND_SECONDS,
    ) -> PullResult:
        """Pull messages from an offset, with long polling for the first one.

        A `broker_id` other than the master's is a replica: it serves reads, and takes no commits.
        """
        header = headers.PullMessageRequest(
            group=self.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            message_count_max=count,
            sys_flag=(_COMMIT if commit_queue_offset is not None and broker_id == MASTER_ID else 0)
            | (_SUSPEND if suspend_seconds else 0)
            | _SUBSCRIPTION,
            commit_queue_offset=commit_queue_offset or 0,
            suspend_timeout_ms=int(suspend_seconds * 1000),
            subscription=subscription.expression,
            subscription_version=subscription.version,
            expression_type=subscription.expression_type,
        )
        seconds = max(PULL_SECONDS, suspend_seconds + 5)
        if self._link.signs:
            answer = await self._invoke(
                queue, RequestCode.PULL_MESSAGE, header, seconds=seconds, accept=_PULL_CODES, broker_id=broker_id
            )
        else:
            answer = await self._pull_by_template(queue, header, seconds, broker_id)
        reply = headers.PullMessageResponse.from_ext_fields(answer.ext_fields)
        return PullResult(
            answer.body if answer.code == ResponseCode.SUCCESS else b"",
            reply.next_queue_offset,
            reply.min_queue_offset,
            reply.max_queue_offset,
            answer.code == ResponseCode.PULL_OFFSET_MOVED,
            reply.suggested_broker_id,
            answer.code,
        )

    async def _pull_by_template(
        self, queue: MessageQueue, header: headers.PullMessageRequest, seconds: float, broker_id: int
    ) -> Command:
        address = self._routes.address_of(queue, broker_id)
        make_frame = partial(self._pull_frames.frame, header)
        try:
            return await self._link.invoke_frame(
                address, RequestCode.PULL_MESSAGE, make_frame, seconds=seconds, accept=_PULL_CODES
            )
        except RemotingError as error:
            self._suspect(queue, error)
            raise

    # Offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of a queue, or None."""
        # Brokers answer 0 for an unknown group while the queue still has its first file, unless this 5.x flag is False.
        header = headers.QueryConsumerOffsetRequest(
            group=self.group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._invoke(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, accept=accept)
        return _queue_offset(answer) if answer.code == ResponseCode.SUCCESS else None

    async def start_offset(self, queue: MessageQueue, start: StartFrom | datetime) -> int:
        """Return the committed offset, or the start position of a group without one."""
        committed = await self.committed(queue)
        return await self.first_offset(queue, start) if committed is None else committed

    async def first_offset(self, queue: MessageQueue, start: StartFrom | datetime) -> int:
        """Return the first offset for a group without a committed one."""
        if start == StartFrom.FIRST or queue.topic.startswith(names.RETRY_PREFIX):
            return 0
        return await (self.offset_at(queue, start) if isinstance(start, datetime) else self.max_offset(queue))

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit an offset: all earlier messages are consumed. One-way, as official clients do."""
        await self._link.invoke_oneway(
            self._address(queue), RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, queue_offset)
        )

    async def commit_now(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit an offset, and wait for the response."""
        await self._invoke(queue, RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, queue_offset))

    def _update(self, queue: MessageQueue, queue_offset: int) -> headers.UpdateConsumerOffsetRequest:
        return headers.UpdateConsumerOffsetRequest(
            group=self.group, topic=queue.topic, queue_id=queue.queue_id, commit_queue_offset=queue_offset
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        header = headers.GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        return _queue_offset(await self._invoke(queue, RequestCode.GET_MAX_OFFSET, header))

    async def min_offset(self, queue: MessageQueue) -> int:
        header = headers.TopicQueueRequest(topic=queue.topic, queue_id=queue.queue_id)
        return _queue_offset(await self._invoke(queue, RequestCode.GET_MIN_OFFSET, header))

    async def offset_at(self, queue: MessageQueue, timestamp: datetime) -> int:
        """Return the offset of the first message stored at or after a timestamp."""
        timestamp_ms = int(timestamp.timestamp() * 1000)
        header = headers.SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms)
        return _queue_offset(await self._invoke(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))

    # Queue locks and redelivery

    async def lock(self, queues: Sequence[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock queues for this member; return the locked ones, and those whose broker did not answer."""
        from orbitlog.wire.bodies.queue_bodies import LockRequestBody, LockResponseBody

        locked: set[MessageQueue] = set()
        unknown: set[MessageQueue] = set()
        for address, its_queues in self._by_broker(queues).items():
            body = encode_body(LockRequestBody(self.group, self.client_id, tuple(its_queues)))
            try:
                answer = await self._link.invoke(address, RequestCode.LOCK_BATCH_MQ, None, body)
            except RemotingError as error:
                log.warning("%s: could not lock %d queues: %s", self.group, len(its_queues), error)
                unknown |= set(its_queues)
                self._routes.suspect(its_queues[0].topic)
            else:
                locked |= set(decode_body(LockResponseBody, answer.body).queues)
        return locked, unknown

    async def unlock(self, queues: Sequence[MessageQueue]) -> None:
        from orbitlog.wire.bodies.queue_bodies import LockRequestBody

        for address, its_queues in self._by_broker(queues).items():
            body = encode_body(LockRequestBody(self.group, self.client_id, tuple(its_queues)))
            await self._link.invoke(address, RequestCode.UNLOCK_BATCH_MQ, None, body)

    async def redeliver(self, queue: MessageQueue, header: headers.SendBackRequest) -> None:
        """Have the broker redeliver a message to the group, or move it to the dead letters."""
        await self._invoke(queue, RequestCode.CONSUMER_SEND_MSG_BACK, header, seconds=5.0)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        by_address: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_address.setdefault(self._address(queue), []).append(queue)
        return by_address

    async def _invoke(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: Header,
        *,
        seconds: float = 5.0,
        accept: Sequence[int] = (ResponseCode.SUCCESS,),
        broker_id: int = MASTER_ID,
    ) -> Command:
        address = self._routes.address_of(queue, broker_id)
        try:
            return await self._link.invoke(address, code, header, seconds=seconds, accept=accept)
        except RemotingError as error:
            self._suspect(queue, error)
            raise

    def _suspect(self, queue: MessageQueue, error: RemotingError) -> None:
        """Look for another master after a failed request."""
        self._routes.suspect(queue.topic, silent=queue.broker_name if isinstance(error, RequestTimeout) else None)

    def _address(self, queue: MessageQueue) -> str:
        return self._routes.address_of(queue)


def _filter_of(subscription: SubscriptionData) -> tuple[str, str]:
    """Return topic and filter expression, with tags in a canonical order."""
    return subscription.topic, " || ".join(sorted(subscription.tags)) or subscription.expression


def _queue_offset(answer: Command) -> int:
    return headers.QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset
