"""Looking at what a broker keeps aside: dead letters, half messages, messages that wait, traces.

All of it lies in topics, so it is read as any topic is, from our broker or from Apache's; nothing is consumed by that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.consumer.received import Received, decode_pulled
from orbitlog.errors import BrokerRefused, FormatError, NoRoute
from orbitlog.formats import names
from orbitlog.formats.delay_levels import STANDARD_LEVELS
from orbitlog.formats.records import properties as props
from orbitlog.formats.records import timer_message, transaction_ops
from orbitlog.formats.tables.offset_tables import DelayOffsets
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import (
    GetMaxOffsetRequest,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    QueueOffsetResponse,
    TopicQueueRequest,
)
from orbitlog.wire.send_headers import RecallMessageRequest, RecallMessageResponse
from orbitlog.wire.trace_records import TraceRecord, decode_trace

GROUP = "TOOLS_CONSUMER"
_OWN_SUBSCRIPTION = 4
_PULL_COUNT = 32
_PULL_SECONDS = 10.0
_TRACES_MAX = 64
_GOES_ON = (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
_ENDS = (ResponseCode.PULL_NOT_FOUND,)


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """One queue at one broker, given by its address."""

    broker_name: str
    address: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A half message that its producer has neither committed nor rolled back."""

    place: QueuePlace
    half: Received
    age_ms: int

    @property
    def check_count(self) -> int:
        return transaction_ops.check_count(self.half.properties)


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that is delivered later; only one with a moment of its own can be taken back."""

    place: QueuePlace
    message: Received
    due_ms: int
    recall_handle: str | None

    @property
    def topic(self) -> str:
        return self.message.properties.get(props.REAL_TOPIC, "")


class Inspection:
    """Reads topics that nobody subscribes to."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin
        self._link: ClusterLink = admin.link

    async def masters(self) -> dict[str, str]:
        """Return the address of every master by its name; raises `NoRoute` if there is none."""
        brokers = await self._admin.brokers()
        if not brokers:
            raise NoRoute(f"no broker has registered with {', '.join(self._link.name_servers)}")
        return brokers

    # Queues

    async def bounds(self, place: QueuePlace) -> tuple[int, int]:
        """Return the first queue offset and the one after the last."""
        first = TopicQueueRequest(topic=place.topic, queue_id=place.queue_id)
        last = GetMaxOffsetRequest(topic=place.topic, queue_id=place.queue_id)
        low = await self._link.ask(place.address, RequestCode.GET_MIN_OFFSET, first)
        high = await self._link.ask(place.address, RequestCode.GET_MAX_OFFSET, last)
        return _offset(low), _offset(high)

    async def walk(self, place: QueuePlace, start: int, end: int) -> AsyncIterator[Received]:
        """Yield the messages of a queue from `start` to before `end`."""
        queue_offset = start
        while queue_offset < end:
            header = PullMessageRequest(
                group=GROUP,
                topic=place.topic,
                queue_id=place.queue_id,
                queue_offset=queue_offset,
                message_count_max=_PULL_COUNT,
                sys_flag=_OWN_SUBSCRIPTION,
                commit_queue_offset=0,
                suspend_timeout_ms=0,
                subscription="*",
                subscription_version=0,
            )
            answer = await self._link.ask(
                place.address, RequestCode.PULL_MESSAGE, header, seconds=_PULL_SECONDS, accept=(*_GOES_ON, *_ENDS)
            )
            for message in decode_pulled(answer.body):
                if message.queue_offset < end:
                    yield Received(message, place.broker_name)
            following = PullMessageResponse.from_ext_fields(answer.ext_fields).next_queue_offset
            if answer.code in _ENDS or following <= queue_offset:
                return
            queue_offset = following

    async def _committed(self, place: QueuePlace, group: str) -> int:
        header = QueryConsumerOffsetRequest(group=group, topic=place.topic, queue_id=place.queue_id)
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._link.ask(place.address, RequestCode.QUERY_CONSUMER_OFFSET, header, accept=accept)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        return _offset(answer)

    # Transactions

    async def pending_transactions(self, now_ms: int) -> AsyncIterator[PendingTransaction]:
        """Yield half messages that are not ended, oldest first at each broker."""
        for broker_name, address in (await self.masters()).items():
            ops = QueuePlace(broker_name, address, names.OP_HALF_TOPIC, 0)
            halves = QueuePlace(broker_name, address, names.HALF_TOPIC, 0)
            # The broker moves on meanwhile: cursors first, and ops last, so that none is missed that ends what we read.
            op_start = await self._committed(ops, names.TRANSACTION_GROUP)
            start = await self._committed(halves, names.TRANSACTION_GROUP)
            low, high = await self.bounds(halves)
            waiting = [each async for each in self.walk(halves, max(low, start), high)]
            low, high = await self.bounds(ops)
            ended: set[int] = set()
            async for op in self.walk(ops, max(low, op_start), high):
                ended.update(transaction_ops.ended_queue_offsets(op.body))
            for half in _newest_copies(waiting):
                if transaction_ops.is_pending(half.queue_offset, half.properties, ended):
                    yield PendingTransaction(halves, half, now_ms - half.stored.born_timestamp_ms)

    # Later

    async def waiting(self, now_ms: int, topic: str | None = None) -> AsyncIterator[WaitingMessage]:
        """Yield what is to be delivered later, of one topic or of all."""
        for broker_name, address in (await self.masters()).items():
            async for found in self._timed(QueuePlace(broker_name, address, names.TIMER_TOPIC, 0), now_ms):
                if topic is None or found.topic == topic:
                    yield found
            async for found in self._delayed(broker_name, address):
                if topic is None or found.topic == topic:
                    yield found

    async def _timed(self, place: QueuePlace, now_ms: int) -> AsyncIterator[WaitingMessage]:
        try:
            low, high = await self.bounds(place)
        except BrokerRefused:
            return  # a broker that knows no such messages
        found: dict[str, WaitingMessage] = {}
        taken_back: set[str] = set()
        async for message in self.walk(place, low, high):
            properties = message.properties
            if timer_message.DELETE_KEY in properties:
                taken_back.add(properties[timer_message.DELETE_KEY])
                continue
            try:
                due_ms = timer_message.stored_due_ms(properties, message.stored.store_timestamp_ms)
                topic, out_ms = properties[props.REAL_TOPIC], int(properties[timer_message.OUT_MS])
            except (FormatError, KeyError, ValueError):
                continue
            key = timer_message.delete_key(topic, message.message_id)
            found.pop(key, None)  # an older copy of a message that waits for long
            if due_ms > now_ms:
                handle = timer_message.RecallHandle(topic, place.broker_name, out_ms + 1, message.message_id)
                found[key] = WaitingMessage(place, message, due_ms, str(handle))
        for each in found.values():
            if not timer_message.is_taken_back(taken_back, each.topic, each.message.message_id):
                yield each

    async def _delayed(self, broker_name: str, address: str) -> AsyncIterator[WaitingMessage]:
        answer = await self._link.ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        delivered = decode_body(DelayOffsets, answer.body).offsets if answer.body else {}
        table = await self._admin.topic_configs(address)
        schedule = table.get(names.SCHEDULE_TOPIC)
        for queue_id in range(schedule.read_queue_count if schedule is not None else 0):
            place = QueuePlace(broker_name, address, names.SCHEDULE_TOPIC, queue_id)
            low, high = await self.bounds(place)
            async for message in self.walk(place, max(low, delivered.get(queue_id + 1, 0)), high):
                # By the standard levels: what the broker's own are a tool need not be told.
                due_ms = STANDARD_LEVELS.deliver_timestamp_ms(queue_id + 1, message.stored.store_timestamp_ms)
                yield WaitingMessage(place, message, due_ms, None)

    async def recall(self, broker_name: str, topic: str, handle: str) -> str:
        """Take back a message that waits for its moment; returns its id."""
        address = (await self.masters()).get(broker_name)
        if address is None:
            raise NoRoute(f"broker {broker_name} is not in this cluster")
        header = RecallMessageRequest(topic=topic, recall_handle=handle, producer_group=GROUP)
        answer = await self._link.ask(address, RequestCode.RECALL_MESSAGE, header)
        return str(RecallMessageResponse.from_ext_fields(answer.ext_fields).message_id)

    # Traces

    async def traces(self, message_id: str, trace_topic: str = names.TRACE_TOPIC) -> list[TraceRecord]:
        """Return what producers and consumers wrote down about a message, in the order of time."""
        found: dict[TraceRecord, None] = {}
        try:
            async for message in self._admin.find(trace_topic, message_id, count=_TRACES_MAX):
                for record in decode_trace(message.body):
                    if record.message_id == message_id or message_id in record.keys.split():
                        found[record] = None
        except NoRoute:
            return []  # nobody has written one yet: the topic is made by the first
        return sorted(found, key=lambda each: each.timestamp_ms)


def _offset(answer: Command) -> int:
    return max(QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset, 0)


def _newest_copies(halves: list[Received]) -> list[Received]:
    """Leave out copies that a later one stands for: a broker appends a half message again when it asks about it."""
    newest: dict[str, Received] = {}
    for half in halves:
        newest.pop(half.message_id, None)
        newest[half.message_id] = half
    return list(newest.values())
