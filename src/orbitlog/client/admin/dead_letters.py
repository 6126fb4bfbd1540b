"""Dead letters: messages that a group has given up on, looked at and sent again.

Sent again means: a new message, to the group alone (its retry topic), or to a topic. The dead letter stays where it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from orbitlog.client.admin.administration import Administration
from orbitlog.client.admin.inspection import Inspection, QueuePlace
from orbitlog.client.admin.replay_record import SENDING, SENT, ReplayedMessage, ReplayRecord
from orbitlog.client.connection.client_identity import UniqueIdMaker
from orbitlog.client.connection.routes import Route, Routes
from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.outgoing import Outgoing, compressed, send_request
from orbitlog.client.producer.receipts import STATUS_OF_CODE
from orbitlog.errors import ClientError, NoRoute
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties as props
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.send_headers import SendMessageResponse

PRODUCER_GROUP = "orbitlog-replay"
REPLAYED_FROM, REPLAYED_ID = "REPLAYED_FROM", "REPLAYED_ID"

# What belongs to the dead letter's own way, and not to the message.
_NOT_COPIED = frozenset(
    (props.DELAY, props.REAL_TOPIC, props.REAL_QUEUE_ID, props.WAIT, props.CLUSTER, props.MSG_REGION, props.TRACE_ON)
) | {
    *(props.TRANSACTION_PREPARED, props.PRODUCER_GROUP, props.TRANSACTION_ID, props.UNIQ_KEY, props.CRC32),
    *("POP_CK", "1ST_POP_TIME", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "RECONSUME_TIME"),
    *("MAX_RECONSUME_TIMES", "ORIGIN_MESSAGE_ID", "CORRELATION_ID", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"),
    *("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"),
}


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which dead letters are meant; what is None does not matter."""

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
    place: QueuePlace
    first: int
    end: int


class DeadLetters:
    """Finds dead letters, and sends them again."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin
        self._link = admin.link
        self._inspection = Inspection(admin)
        self._routes = Routes(self._link)
        self._unique_ids = UniqueIdMaker()
        self._turn = 0

    async def queues(self, group: str | None = None) -> list[DeadLetterQueue]:
        """Return where dead letters are, of one group or of all."""
        found: list[DeadLetterQueue] = []
        for broker_name, address in (await self._inspection.masters()).items():
            for topic, config in sorted((await self._admin.topic_configs(address)).items()):
                owner = topic.removeprefix(names.DLQ_PREFIX)
                if owner == topic or (group is not None and owner != group):
                    continue
                for queue_id in range(max(config.read_queue_count, config.write_queue_count)):
                    place = QueuePlace(broker_name, address, topic, queue_id)
                    first, end = await self._inspection.bounds(place)
                    found.append(DeadLetterQueue(owner, place, first, end))
        return found

    async def letters(self, group: str, wanted: LetterFilter) -> AsyncIterator[Received]:
        """Yield the dead letters of a group that are meant, oldest first at each broker."""
        for queue in await self.queues(group):
            async for letter in self._inspection.walk(queue.place, queue.first, queue.end):
                if wanted.wants(letter):
                    yield letter

    async def settle(self, record: ReplayRecord) -> None:
        """Find out about a message of which the record does not know whether it was sent, by its id."""
        for line in record.unfinished:
            if not await self._exists(line.toTopic):
                continue
            async for found in self._admin.find(line.toTopic, line.newMsgId, count=1, by_id=True):
                record.note_sent(line, found.queue_id, found.queue_offset)

    async def _exists(self, topic: str) -> bool:
        try:
            await self._routes.refresh(topic)
        except NoRoute:
            return False
        return True

    async def replay(self, letter: Received, to_topic: str, record: ReplayRecord) -> ReplayedMessage | None:
        """Send one again, and write it down; None if the record says that it was."""
        stored = letter.stored
        place = (stored.topic, letter.broker_name, stored.queue_id, stored.queue_offset)
        before = record.find(place)
        if before is not None and before.state == SENT:
            return None
        new_id = before.newMsgId if before is not None else self._unique_ids.make()
        line = ReplayedMessage(SENDING, *place, letter.message_id, to_topic, new_id, time.time_ns() // 1_000_000)
        message = _again(letter, to_topic, new_id)
        queue, address = await self._queue(to_topic)
        record.note(line)
        header, body = send_request(message, queue, PRODUCER_GROUP)
        answer = await self._link.ask(address, RequestCode.SEND_MESSAGE_V2, header, body, accept=tuple(STATUS_OF_CODE))
        told = SendMessageResponse.from_ext_fields(answer.ext_fields)
        record.note_sent(line, told.queue_id, told.queue_offset)
        return record.find(place)

    async def _queue(self, topic: str) -> tuple[MessageQueue, str]:
        """Return a queue of the topic in turn; never another one for the same message, so that it is stored once."""
        route: Route = await self._routes.of(topic)
        if not route.write_queues:
            raise ClientError(f"topic {topic} has no queue that can be written")
        self._turn += 1
        queue = route.write_queues[self._turn % len(route.write_queues)]
        return queue, route.brokers[queue.broker_name][0]


def target_topic(letter: Received, group: str, *, to_origin: bool, to_topic: str | None) -> str:
    """Return where a dead letter goes: to the topic that was named, to the one it came from, or to its group alone."""
    if to_topic is not None:
        return to_topic
    if not to_origin:
        return names.retry_topic(group)
    origin = letter.properties.get(props.RETRY_TOPIC) or letter.properties.get("DLQ_ORIGIN_TOPIC")
    if not origin:
        raise ClientError(f"dead letter {letter.message_id} does not say which topic it came from; name one")
    return origin


def _again(letter: Received, to_topic: str, new_id: str) -> Outgoing:
    stored = letter.stored
    kept = {name: value for name, value in letter.properties.items() if name not in _NOT_COPIED}
    if not to_topic.startswith(names.RETRY_PREFIX):
        kept.pop(props.RETRY_TOPIC, None)
    kept[REPLAYED_FROM] = f"{stored.topic}:{letter.broker_name}:{stored.queue_id}:{stored.queue_offset}"
    kept[REPLAYED_ID] = letter.message_id
    kept |= {props.UNIQ_KEY: new_id, props.WAIT: "true"}
    message = Outgoing(to_topic, letter.body, kept, stored.flag)
    return compressed(message) if message.is_worth_compressing else message


async def paced(rate: float | None, clock: Callable[[], float] = time.monotonic) -> AsyncIterator[None]:
    """Yield at most `rate` times a second; as often as asked where it is None."""
    next_at = clock()
    while True:
        yield
        if rate is None:
            continue
        next_at = max(next_at + 1 / rate, clock() - 1)
        await asyncio.sleep(max(next_at - clock(), 0))
