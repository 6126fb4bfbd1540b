"""Dead letters: listing, and replay.

A replay sends a copy as a new message: to the group only (its retry topic), or to a topic. The dead letter is kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from orbitlog.client.admin.administration import Administration
from orbitlog.client.admin.inspection import BrokerQueue, Inspection
from orbitlog.client.admin.replay_record import SENDING, SENT, ReplayedMessage, ReplayRecord
from orbitlog.client.connection.client_identity import UniqueIdMaker
from orbitlog.client.connection.routes import Route, Routes
from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.outgoing import OutgoingMessage, compressed, send_request
from orbitlog.client.producer.receipts import STATUS_OF_CODE
from orbitlog.errors import ClientError, NoRoute
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties as props
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.send_headers import SendMessageResponse

PRODUCER_GROUP = "orbitlog-replay"
REPLAYED_FROM, REPLAYED_ID = "REPLAYED_FROM", "REPLAYED_ID"

# Properties of the delivery history, not of the message.
NOT_COPIED = frozenset(
    (props.DELAY, props.REAL_TOPIC, props.REAL_QUEUE_ID, props.WAIT, props.CLUSTER, props.MSG_REGION, props.TRACE_ON)
) | {
    *(props.TRANSACTION_PREPARED, props.PRODUCER_GROUP, props.TRANSACTION_ID, props.UNIQ_KEY, props.CRC32),
    *("POP_CK", "1ST_POP_TIME", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "RECONSUME_TIME"),
    *("MAX_RECONSUME_TIMES", "ORIGIN_MESSAGE_ID", "CORRELATION_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"),
    *("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
}


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Filter of dead letters; a criterion of None matches all."""

    tags: str | None = None
    key: str | None = None
    message_id: str | None = None
    text: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def wants(self, letter: Received) -> bool:
        stored_ms = letter.stored.store_timestamp_ms
        return (
            (self.tags is None or letter.tags == self.tags)
            and (self.key is None or self.key in letter.keys)
            and (self.message_id is None or self.message_id in (letter.message_id, letter.offset_message_id))
            and (self.since_ms is None or stored_ms >= self.since_ms)
            and (self.until_ms is None or stored_ms < self.until_ms)
            and (self.text is None or self.text.encode() in letter.body)
        )


@dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """The dead letters of one group at one broker."""

    group: str
    queue: BrokerQueue
    first: int
    end: int


class DeadLetters:
    """Lists and replays dead letters."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin
        self._link = admin.link
        self._inspection = Inspection(admin)
        self._routes = Routes(self._link)
        self._unique_ids = UniqueIdMaker()
        self._turn = 0

    async def queues(self, group: str | None = None) -> list[DeadLetterQueue]:
        """Return the dead letter queues of one group, or of all."""
        queues: list[DeadLetterQueue] = []
        for broker_name, address in (await self._inspection.masters()).items():
            for topic, config in sorted((await self._admin.topic_configs(address)).items()):
                owner = topic.removeprefix(names.DLQ_PREFIX)
                if owner == topic or (group is not None and owner != group):
                    continue
                for queue_id in range(max(config.read_queue_count, config.write_queue_count)):
                    queue = BrokerQueue(broker_name, address, topic, queue_id)
                    first, end = await self._inspection.bounds(queue)
                    queues.append(DeadLetterQueue(owner, queue, first, end))
        return queues

    async def letters(self, group: str, wanted: LetterFilter) -> AsyncIterator[Received]:
        """Yield the dead letters of a group that match, oldest first at each broker."""
        for entry in await self.queues(group):
            async for letter in self._inspection.walk(entry.queue, entry.first, entry.end):
                if wanted.wants(letter):
                    yield letter

    async def settle(self, record: ReplayRecord) -> None:
        """Look up messages whose send was interrupted by their ids, and record those that were stored."""
        for line in record.unfinished:
            if not await self._exists(line.toTopic):
                continue
            async for message in self._admin.find(line.toTopic, line.newMsgId, count=1, by_id=True):
                record.note_sent(line, message.queue_id, message.queue_offset)

    async def _exists(self, topic: str) -> bool:
        try:
            await self._routes.refresh(topic)
        except NoRoute:
            return False
        return True

    async def replay(self, letter: Received, to_topic: str, record: ReplayRecord) -> ReplayedMessage | None:
        """Replay one dead letter and record it; return None if the record contains it already."""
        stored = letter.stored
        source = (stored.topic, letter.broker_name, stored.queue_id, stored.queue_offset)
        earlier = record.find(source)
        if earlier is not None and earlier.state == SENT:
            return None
        new_id = earlier.newMsgId if earlier is not None else self._unique_ids.make()
        line = ReplayedMessage(SENDING, *source, letter.message_id, to_topic, new_id, time.time_ns() // 1_000_000)
        message = _copy(letter, to_topic, new_id)
        queue, address = await self._queue(to_topic)
        record.note(line)
        header, body = send_request(message, queue, PRODUCER_GROUP)
        answer = await self._link.invoke(
            address, RequestCode.SEND_MESSAGE_V2, header, body, accept=tuple(STATUS_OF_CODE)
        )
        reply = SendMessageResponse.from_ext_fields(answer.ext_fields)
        record.note_sent(line, reply.queue_id, reply.queue_offset)
        return record.find(source)

    async def _queue(self, topic: str) -> tuple[MessageQueue, str]:
        """Return the next queue of the topic and its address. No retry elsewhere: it could create a copy."""
        route: Route = await self._routes.of(topic)
        if not route.write_queues:
            raise ClientError(f"topic {topic} has no writable queue")
        self._turn += 1
        queue = route.write_queues[self._turn % len(route.write_queues)]
        return queue, self._routes.address_of(queue)


def target_topic(letter: Received, group: str, *, to_origin: bool, to_topic: str | None) -> str:
    """Return the target of a replay: the given topic, the original one, or the retry topic of the group."""
    if to_topic is not None:
        return to_topic
    if not to_origin:
        return names.retry_topic(group)
    origin = letter.properties.get(props.RETRY_TOPIC) or letter.properties.get("DLQ_ORIGIN_TOPIC")
    if not origin:
        raise ClientError(f"dead letter {letter.message_id} does not contain its original topic; give one")
    return origin


def _copy(letter: Received, to_topic: str, new_id: str) -> OutgoingMessage:
    stored = letter.stored
    kept = {name: value for name, value in letter.properties.items() if name not in NOT_COPIED}
    if not to_topic.startswith(names.RETRY_PREFIX):
        kept.pop(props.RETRY_TOPIC, None)
    kept[REPLAYED_FROM] = f"{stored.topic}:{letter.broker_name}:{stored.queue_id}:{stored.queue_offset}"
    kept[REPLAYED_ID] = letter.message_id
    kept |= {props.UNIQ_KEY: new_id, props.WAIT: "true"}
    message = OutgoingMessage(to_topic, letter.body, kept, stored.flag)
    return compressed(message) if message.is_worth_compressing else message


async def paced(rate: float | None, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
    """Yield at most `rate` times a second; without limit for None."""
    next_at = clock()
    while True:
        yield
        if rate is None:
            continue
        next_at = max(next_at + 1 / rate, clock() - 1)
        await asyncio.sleep(max(next_at - clock(), 0))
