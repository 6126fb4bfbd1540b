"""Inspection of system topics: half messages, scheduled messages, dead letters, traces.

These are read like any topic, from Orbitlog or Apache brokers; no offset is committed.
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
_CONTINUE = (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
_END = (ResponseCode.PULL_NOT_FOUND,)


@dataclass(frozen=True, slots=True)
class BrokerQueue:
    """One queue at the broker with this address."""

    broker_name: str
    address: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class PendingTransaction:
    """A half message that was neither committed nor rolled back."""

    queue: BrokerQueue
    half: Received
    age_ms: int

    @property
    def check_count(self) -> int:
        return transaction_ops.check_count(self.half.properties)


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A message to be delivered later; only a timer message has a recall handle."""

    queue: BrokerQueue
    message: Received
    due_ms: int
    recall_handle: str | None

    @property
    def topic(self) -> str:
        return self.message.properties.get(props.REAL_TOPIC, "")


class Inspection:
    """Reads system topics."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin
        self._link: ClusterLink = admin.link

    async def masters(self) -> dict[str, str]:
        """Return the address of every master by broker name; raise `NoRoute` without one."""
        brokers = await self._admin.brokers()
        if not brokers:
            raise NoRoute(f"no broker has registered with {', '.join(self._link.name_servers)}")
        return brokers

    # Queues

    async def bounds(self, queue: BrokerQueue) -> tuple[int, int]:
        """Return minimum and maximum queue offset."""
        first = TopicQueueRequest(topic=queue.topic, queue_id=queue.queue_id)
        last = GetMaxOffsetRequest(topic=queue.topic, queue_id=queue.queue_id)
        low = await self._link.invoke(queue.address, RequestCode.GET_MIN_OFFSET, first)
        high = await self._link.invoke(queue.address, RequestCode.GET_MAX_OFFSET, last)
        return _offset(low), _offset(high)

    async def walk(self, queue: BrokerQueue, start: int, end: int) -> AsyncIterator[Received]:
        """Yield the messages of a queue from offset `start` up to `end`, exclusive."""
        queue_offset = start
        while queue_offset < end:
            header = PullMessageRequest(
                group=GROUP,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                message_count_max=_PULL_COUNT,
                sys_flag=_OWN_SUBSCRIPTION,
                commit_queue_offset=0,
                suspend_timeout_ms=0,
                subscription="*",
                subscription_version=0,
            )
            answer = await self._link.invoke(
                queue.address, RequestCode.PULL_MESSAGE, header, seconds=_PULL_SECONDS, accept=(*_CONTINUE, *_END)
            )
            for message in decode_pulled(answer.body):
                if message.queue_offset < end:
                    yield Received(message, queue.broker_name)
            following = PullMessageResponse.from_ext_fields(answer.ext_fields).next_queue_offset
            if answer.code in _END or following <= queue_offset:
                return
            queue_offset = following

    async def _committed(self, queue: BrokerQueue, group: str) -> int:
        header = QueryConsumerOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id)
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._link.invoke(queue.address, RequestCode.QUERY_CONSUMER_OFFSET, header, accept=accept)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        return _offset(answer)

    # Transactions

    async def pending_transactions(self, now_ms: int) -> AsyncIterator[PendingTransaction]:
        """Yield half messages that were not ended, oldest first at each broker."""
        for broker_name, address in (await self.masters()).items():
            ops = BrokerQueue(broker_name, address, names.OP_HALF_TOPIC, 0)
            halves = BrokerQueue(broker_name, address, names.HALF_TOPIC, 0)
            # The broker keeps committing during this. Read both offsets first and the op queue last, so that no op is
            # missed that ends a half message read here.
            op_start = await self._committed(ops, names.TRANSACTION_GROUP)
            start = await self._committed(halves, names.TRANSACTION_GROUP)
            low, high = await self.bounds(halves)
            open_halves = [half async for half in self.walk(halves, max(low, start), high)]
            low, high = await self.bounds(ops)
            ended: set[int] = set()
            async for op in self.walk(ops, max(low, op_start), high):
                ended.update(transaction_ops.ended_queue_offsets(op.body))
            for half in _newest_copies(open_halves):
                if transaction_ops.is_pending(half.queue_offset, half.properties, ended):
                    yield PendingTransaction(halves, half, now_ms - half.stored.born_timestamp_ms)

    # Scheduled messages

    async def scheduled(self, now_ms: int, topic: str | None = None) -> AsyncIterator[ScheduledMessage]:
        """Yield scheduled messages of one topic, or of all."""
        for broker_name, address in (await self.masters()).items():
            async for message in self._timed(BrokerQueue(broker_name, address, names.TIMER_TOPIC, 0), now_ms):
                if topic is None or message.topic == topic:
                    yield message
            async for message in self._delayed(broker_name, address):
                if topic is None or message.topic == topic:
                    yield message

    async def _timed(self, queue: BrokerQueue, now_ms: int) -> AsyncIterator[ScheduledMessage]:
        try:
            low, high = await self.bounds(queue)
        except BrokerRefused:
            return  # a broker without timer messages
        pending: dict[str, ScheduledMessage] = {}
        recalled: set[str] = set()
        async for message in self.walk(queue, low, high):
            properties = message.properties
            recalled_key = timer_message.recalled_key(properties)
            if recalled_key is not None:
                recalled.add(recalled_key)
                continue
            try:
                due_ms = timer_message.stored_due_ms(properties, message.stored.store_timestamp_ms)
                topic, out_ms = properties[props.REAL_TOPIC], timer_message.stored_out_ms(properties)
            except (FormatError, KeyError):
                continue
            key = timer_message.delete_key(topic, message.message_id)
            pending.pop(key, None)  # an earlier copy: brokers re-append messages with a long delay
            if due_ms > now_ms:
                handle = timer_message.RecallHandle(topic, queue.broker_name, out_ms + 1, message.message_id)
                pending[key] = ScheduledMessage(queue, message, due_ms, str(handle))
        for scheduled in pending.values():
            if timer_message.delete_key(scheduled.topic, scheduled.message.message_id) not in recalled:
                yield scheduled

    async def _delayed(self, broker_name: str, address: str) -> AsyncIterator[ScheduledMessage]:
        answer = await self._link.invoke(address, RequestCode.GET_ALL_DELAY_OFFSET)
        delivered = decode_body(DelayOffsets, answer.body).offsets if answer.body else {}
        table = await self._admin.topic_configs(address)
        schedule = table.get(names.SCHEDULE_TOPIC)
        for queue_id in range(schedule.read_queue_count if schedule is not None else 0):
            queue = BrokerQueue(broker_name, address, names.SCHEDULE_TOPIC, queue_id)
            low, high = await self.bounds(queue)
            async for message in self.walk(queue, max(low, delivered.get(queue_id + 1, 0)), high):
                # By the default levels: brokers do not report their own levels to all tools.
                due_ms = STANDARD_LEVELS.deliver_timestamp_ms(queue_id + 1, message.stored.store_timestamp_ms)
                yield ScheduledMessage(queue, message, due_ms, None)

    # Messages that could not be delivered

    async def quarantined(self) -> AsyncIterator[Received]:
        """Yield the messages that brokers could not deliver, oldest first at each broker."""
        for broker_name, address in (await self.masters()).items():
            if names.QUARANTINE_TOPIC not in await self._admin.topic_configs(address):
                continue
            queue = BrokerQueue(broker_name, address, names.QUARANTINE_TOPIC, 0)
            low, high = await self.bounds(queue)
            async for message in self.walk(queue, low, high):
                yield message

    async def recall(self, broker_name: str, topic: str, handle: str) -> str:
        """Recall a timer message; return its id."""
        address = (await self.masters()).get(broker_name)
        if address is None:
            raise NoRoute(f"broker {broker_name} is not part of this cluster")
        header = RecallMessageRequest(topic=topic, recall_handle=handle, producer_group=GROUP)
        answer = await self._link.invoke(address, RequestCode.RECALL_MESSAGE, header)
        return str(RecallMessageResponse.from_ext_fields(answer.ext_fields).message_id)

    # Traces

    async def traces(self, message_id: str, trace_topic: str = names.TRACE_TOPIC) -> list[TraceRecord]:
        """Return the trace records of a message, ordered by time."""
        records: dict[TraceRecord, None] = {}
        try:
            async for message in self._admin.find(trace_topic, message_id, count=_TRACES_MAX):
                for record in decode_trace(message.body):
                    if record.message_id == message_id or message_id in record.keys.split():
                        records[record] = None
        except NoRoute:
            return []  # no traces yet: the first one creates the topic
        return sorted(records, key=lambda record: record.timestamp_ms)


def _offset(answer: Command) -> int:
    return max(QueueOffsetResponse.from_ext_fields(answer.ext_fields).queue_offset, 0)


def _newest_copies(halves: list[Received]) -> list[Received]:
    """Return the latest copy of each half message: a broker appends another copy with each transaction check."""
    newest: dict[str, Received] = {}
    for half in halves:
        newest.pop(half.message_id, None)
        newest[half.message_id] = half
    return list(newest.values())
