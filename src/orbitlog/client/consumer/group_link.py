"""What the members of a consumer group ask of brokers: members, offsets, locks, messages, another try.

Mirrors Java `MQClientAPIImpl`, `RemoteBrokerOffsetStore`, `RebalancePushImpl.computePullFromWhere`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import MASTER_ID, Routes
from orbitlog.errors import BrokerRefused, ClientError, NoRoute, RemotingError
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
    """Where a group begins in a queue in which it never committed."""

    LAST = "last"
    FIRST = "first"


def start_of(value: StartFrom | datetime | str) -> StartFrom | datetime:
    """Return what a program means by where to begin."""
    if isinstance(value, datetime):
        return value
    try:
        return StartFrom(value)
    except ValueError:
        raise ClientError(f"begin at {value!r:.80}? 'first', 'last' or a datetime is meant") from None


@dataclass(frozen=True, slots=True)
class Pulled:
    """Messages as they lie in the log, and where to go on."""

    body: bytes
    next_queue_offset: int
    min_queue_offset: int
    max_queue_offset: int
    offset_moved: bool
    suggested_broker_id: int = MASTER_ID
    code: int = ResponseCode.SUCCESS


class GroupLink:
    """The requests of one consumer group."""

    def __init__(self, link: ClusterLink, routes: Routes, group: str, client_id: str) -> None:
        self._link = link
        self._routes = routes
        self.group = group
        self.client_id = client_id

    async def members(self, topic: str) -> list[str]:
        """Return the ids of all members, sorted as all of them sort; any broker of the topic knows them."""
        header = headers.ConsumerGroupRequest(group=self.group)
        failure: RemotingError | NoRoute = NoRoute(f"topic {topic} has no broker")
        for addresses in (await self._routes.of(topic)).brokers.values():
            address = addresses.get(0) or next(iter(addresses.values()), None)
            if address is None:
                continue
            try:
                answer = await self._link.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, accept=_LISTED)
            except RemotingError as error:
                failure = error
                continue
            # A broker that was just started knows of no members: code 1.
            return sorted(decode_body(ConsumerList, answer.body).client_ids) if answer.body else []
        raise failure

    async def check(self, subscription: SubscriptionData) -> None:
        """Have a broker look at a filter expression; raises what it says of one that it cannot use."""
        body = encode_body(CheckClientRequestBody(self.client_id, self.group, subscription))
        for broker_name in (await self._routes.of(subscription.topic)).brokers:
            address = self._routes.address(broker_name)
            if address is not None:
                try:
                    await self._link.ask(address, RequestCode.CHECK_CLIENT_CONFIG, None, body)
                except BrokerRefused as error:
                    # Brokers that have no filters by properties say so with the code for whatever went wrong.
                    if error.code != ResponseCode.SYSTEM_ERROR:
                        raise
                    raise BrokerRefused(error.code, error.remark, advice=_NO_SQL) from None
                return

    async def warn_of_others(self, subscriptions: Sequence[SubscriptionData]) -> None:
        """Warn if members that are there want something else: each would then lose what the others do not want."""
        from orbitlog.wire.bodies.client_bodies import ConsumerConnection

        route = next(filter(None, (self._routes.known(each.topic) for each in subscriptions)), None)
        address = next(filter(None, map(self._routes.address, route.brokers)), None) if route else None
        if address is None:
            return
        header = headers.ConsumerGroupRequest(group=self.group)
        try:
            answer = await self._link.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except (BrokerRefused, RemotingError):
            return  # usually: nobody is there
        theirs = decode_body(ConsumerConnection, answer.body).subscriptions
        others = {_wish(each) for topic, each in theirs.items() if not topic.startswith(names.RETRY_PREFIX)}
        if others and others != set(map(_wish, subscriptions)):
            wishes = ", ".join(f"{topic} ({wanted})" for topic, wanted in sorted(others))
            log.warning(
                "%s: other members want %s; those of one group must want the same, or messages are lost to it",
                self.group,
                wishes,
            )

    async def pull(  # noqa: PLR0917 - what a pull is made of
        self,
        queue: MessageQueue,
        queue_offset: int,
        subscription: SubscriptionData,
        commit_queue_offset: int | None = None,
        broker_id: int = MASTER_ID,
        count: int = PULL_COUNT,
        suspend_seconds: float = SUSPEND_SECONDS,
    ) -> Pulled:
        """Fetch messages from an offset on, waiting at the broker for the first one to come.

        Other ids than the master's are copies of it: they are read from, and nothing is committed there.
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
        address = self._routes.address_of(queue, broker_id)
        answer = await self._link.ask(address, RequestCode.PULL_MESSAGE, header, seconds=seconds, accept=_PULL_CODES)
        told = headers.PullMessageResponse.from_ext_fields(answer.ext_fields)
        return Pulled(
            answer.body if answer.code == ResponseCode.SUCCESS else b"",
            told.next_queue_offset,
            told.min_queue_offset,
            told.max_queue_offset,
            answer.code == ResponseCode.PULL_OFFSET_MOVED,
            told.suggested_broker_id,
            answer.code,
        )

    # Offsets

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return how far the group is in a queue; None if it never committed there."""
        # Brokers say 0 for a group that never was there as long as the queue is young; 5.x can be asked not to.
        header = headers.QueryConsumerOffsetRequest(
            group=self.group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, accept=accept)
        return _queue_offset(answer) if answer.code == ResponseCode.SUCCESS else None

    async def start_offset(self, queue: MessageQueue, start: StartFrom | datetime) -> int:
        """Return where to begin: where the group left off, or where it wants to begin."""
        committed = await self.committed(queue)
        return await self.first_offset(queue, start) if committed is None else committed

    async def first_offset(self, queue: MessageQueue, start: StartFrom | datetime) -> int:
        """Return where a group begins that never was in a queue."""
        if start == StartFrom.FIRST or queue.topic.startswith(names.RETRY_PREFIX):
            return 0
        return await (self.offset_at(queue, start) if isinstance(start, datetime) else self.max_offset(queue))

    async def commit(self, queue: MessageQueue, queue_offset: int) -> None:
        """Say that everything before an offset is done. One-way, as official clients do it."""
        await self._link.tell(
            self._address(queue), RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, queue_offset)
        )

    async def commit_now(self, queue: MessageQueue, queue_offset: int) -> None:
        """The same, and wait until the broker has it."""
        await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, self._update(queue, queue_offset))

    def _update(self, queue: MessageQueue, queue_offset: int) -> headers.UpdateConsumerOffsetRequest:
        return headers.UpdateConsumerOffsetRequest(
            group=self.group, topic=queue.topic, queue_id=queue.queue_id, commit_queue_offset=queue_offset
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        header = headers.GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        return _queue_offset(await self._ask(queue, RequestCode.GET_MAX_OFFSET, header))

    async def min_offset(self, queue: MessageQueue) -> int:
        header = headers.TopicQueueRequest(topic=queue.topic, queue_id=queue.queue_id)
        return _queue_offset(await self._ask(queue, RequestCode.GET_MIN_OFFSET, header))

    async def offset_at(self, queue: MessageQueue, moment: datetime) -> int:
        """Return the first offset stored at or after a moment."""
        timestamp_ms = int(moment.timestamp() * 1000)
        header = headers.SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=timestamp_ms)
        return _queue_offset(await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))

    # Locks and retries

    async def lock(self, queues: Sequence[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock queues for this member; return those that it has now, and those whose broker did not answer."""
        from orbitlog.wire.bodies.queue_bodies import LockRequestBody, LockResponseBody

        locked: set[MessageQueue] = set()
        unknown: set[MessageQueue] = set()
        for address, theirs in self._by_broker(queues).items():
            body = encode_body(LockRequestBody(self.group, self.client_id, tuple(theirs)))
            try:
                answer = await self._link.ask(address, RequestCode.LOCK_BATCH_MQ, None, body)
            except RemotingError as error:
                log.warning("%s: %d queues cannot be locked now: %s", self.group, len(theirs), error)
                unknown |= set(theirs)
            else:
                locked |= set(decode_body(LockResponseBody, answer.body).queues)
        return locked, unknown

    async def unlock(self, queues: Sequence[MessageQueue]) -> None:
        from orbitlog.wire.bodies.queue_bodies import LockRequestBody

        for address, theirs in self._by_broker(queues).items():
            body = encode_body(LockRequestBody(self.group, self.client_id, tuple(theirs)))
            await self._link.ask(address, RequestCode.UNLOCK_BATCH_MQ, None, body)

    async def send_back(self, queue: MessageQueue, header: headers.SendBackRequest) -> None:
        """Have a message delivered to the group again, later."""
        await self._ask(queue, RequestCode.CONSUMER_SEND_MSG_BACK, header, seconds=5.0)

    def _by_broker(self, queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            found.setdefault(self._address(queue), []).append(queue)
        return found

    async def _ask(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: Header,
        *,
        seconds: float = 5.0,
        accept: Sequence[int] = (ResponseCode.SUCCESS,),
    ) -> Command:
        return await self._link.ask(self._address(queue), code, header, seconds=seconds, accept=accept)

    def _address(self, queue: MessageQueue) -> str:
        return self._routes.address_of(queue)


def _wish(subscription: SubscriptionData) -> tuple[str, str]:
    """Topic and expression, however it is spelled."""
    return subscription.topic, " || ".join(sorted(subscription.tags)) or subscription.expression


def _queue_offset(answer: Command) -> int:
    return headers.QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset
