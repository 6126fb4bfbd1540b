"""Half messages: stored aside until their producer says commit or rollback. Mirrors `TransactionalMessageBridge`.

A half message waits in RMQ_SYS_TRANS_HALF_TOPIC and is never changed. An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC
names the half messages that are ended, by their queue offsets. So what is pending is what no op message names, and both
topics tell it to whoever opens the store, a Java broker too.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from orbitlog.broker.runtime.broker_state import BrokerState, host_bits
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.formats import names
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import BODY_CRC_MASK, Message, record_version
from orbitlog.formats.records.properties import decode_properties
from orbitlog.formats.records.record_template import RecordTemplate
from orbitlog.formats.records.transaction_ops import (
    CHECK_TIMES,
    OP_SEPARATOR,
    PREPARED_QUEUE_OFFSET,
    ended_queue_offsets,
)
from orbitlog.store.appending.put_result import PutResult

HALF_QUEUE = 0
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
ENDED_TOGETHER_MAX = 200  # keeps an op message below the 4,096 bytes that Java's have at most
_DIGITS_MAX = 18
_RECENT_MAX = 1024
_RECENT_BODY_BYTES_MAX = 4096
_REAL_TOPIC, _REAL_QUEUE_ID = props.REAL_TOPIC + props.NAME_END, props.REAL_QUEUE_ID + props.NAME_END
_TRANSACTION_ID = props.TRANSACTION_ID + props.NAME_END
_OP_PROPERTIES = {props.TAGS: "d", props.WAIT: "true"}


def origin_of(half: Message, properties: dict[str, str] | None = None) -> int:
    """Return the queue offset under which a half message was sent, be this the first copy of it or a later one.

    Whoever has read its properties gives them: that is dear.
    """
    first = (half.properties if properties is None else properties).get(PREPARED_QUEUE_OFFSET, "")
    return int(first) if first.isascii() and first.isdigit() and len(first) <= _DIGITS_MAX else half.queue_offset


class RecentHalf(NamedTuple):
    """A half message as it was stored a moment ago, and what its commit will be."""

    sample: Message
    committed: RecordTemplate | None
    queue: tuple[str, int]
    queue_offset: int
    born_ms: int
    body: bytes
    properties_raw: bytes
    committed_raw: bytes
    producer_group: str

    def message_at(self, physical_offset: int) -> Message:
        """Return the half message, but for its store time."""
        return self.sample._replace(
            body_crc=crc32(self.body) & BODY_CRC_MASK,
            queue_id=HALF_QUEUE,
            queue_offset=self.queue_offset,
            physical_offset=physical_offset,
            born_timestamp_ms=self.born_ms,
            body=self.body,
            properties_raw=self.properties_raw,
        )


def _aside(topic: str, queue_id: int | str) -> str:
    """Say where a message belongs that is kept aside, in the properties behind its own."""
    return f"{_REAL_TOPIC}{topic}{props.PROPERTY_END}{_REAL_QUEUE_ID}{queue_id}{props.PROPERTY_END}"


class HalfMessages:
    """Puts half messages aside, and ends them."""

    def __init__(self, state: BrokerState, writer: MessageWriter) -> None:
        self._state = state
        self._writer = writer
        self._op_properties_raw = writer.encode(_OP_PROPERTIES)
        self._recent: dict[int, RecentHalf] = {}

    def prepared(self, message: Message, properties: dict[str, str]) -> Message:
        """Return the half message to store instead; changes `properties`."""
        return message._replace(
            topic=names.HALF_TOPIC,
            queue_id=HALF_QUEUE,
            sys_flag=flags.with_transaction_type(message.sys_flag, TransactionType.NONE),
            properties_raw=self._prepared_properties(properties, message.topic, message.queue_id),
            version=1,
        )

    def _prepared_properties(self, properties: dict[str, str], topic: str, queue_id: int) -> bytes:
        """Return a half message's properties for a message that is to go there; changes `properties`."""
        for name in (PREPARED_QUEUE_OFFSET, CHECK_TIMES):
            properties.pop(name, None)  # ours: who set it could end another one's message
        unique_id = properties.get(props.UNIQ_KEY)
        if unique_id and self._state.compat.half_message_has_transaction_id:
            properties[props.TRANSACTION_ID] = unique_id
        properties[props.REAL_TOPIC] = topic
        properties[props.REAL_QUEUE_ID] = str(queue_id)
        return self._writer.encode(properties)

    def quick_properties(self, text: str, unique_id: str, topic: str, queue_id: int) -> tuple[bytes, bytes]:
        """Return the properties of a half message and of its commit: what came, every item ended, with ours behind."""
        compat, cut = self._state.compat, None if self._writer.has_separator else -1
        if compat.half_message_has_transaction_id:
            text += f"{_TRANSACTION_ID}{unique_id}{props.PROPERTY_END}"
        raw = f"{text}{_aside(topic, queue_id)}".encode()[:cut]
        return raw, raw if compat.commit_keeps_real_topic else text.encode()[:cut]

    def remember(self, physical_offset: int, half: RecentHalf) -> None:
        """Keep a half message at hand that was just stored: mostly it is ended at once, and need not be read again."""
        if len(half.body) <= _RECENT_BODY_BYTES_MAX:
            recent = self._recent
            recent[physical_offset] = half
            if len(recent) > _RECENT_MAX:
                del recent[next(iter(recent))]

    def recent(self, physical_offset: int) -> RecentHalf | None:
        """Return the half message there if it is at hand, and others may know of it."""
        return self._recent.get(physical_offset) if physical_offset < self._state.store.confirmed_to else None

    def forget(self, physical_offset: int) -> None:
        self._recent.pop(physical_offset, None)

    def find(self, physical_offset: int) -> tuple[Message, dict[str, str]] | None:
        """Return the half message there and its properties; None where another message or none is.

        One that was at hand has no store time, which nobody asks of it.
        """
        recent = self.recent(physical_offset)
        if recent is not None:
            self.forget(physical_offset)
            return recent.message_at(physical_offset), decode_properties(recent.properties_raw)
        message = self._state.store.read_at(physical_offset)
        if message is None or message.topic != names.HALF_TOPIC:
            return None
        return message, message.properties

    def at(self, queue_offset: int) -> Message | None:
        """Return the half message with that queue offset."""
        return self._read(names.HALF_TOPIC, queue_offset)

    def commit(self, half: Message, properties: dict[str, str]) -> PutResult:
        """Store the message for real; the half message is not ended by that. Changes its `properties`."""
        topic, queue_id = properties[props.REAL_TOPIC], properties[props.REAL_QUEUE_ID]
        if not self._state.compat.commit_keeps_real_topic:
            del properties[props.REAL_TOPIC], properties[props.REAL_QUEUE_ID]
        message = half._replace(
            topic=topic,
            queue_id=int(queue_id),
            sys_flag=flags.with_transaction_type(half.sys_flag, TransactionType.COMMIT),
            prepared_transaction_offset=half.physical_offset,
            properties_raw=self._committed_properties(half.properties_raw, properties, topic, queue_id),
            version=record_version(topic),
        )
        return self._writer.put(self._writer.schedule(message, properties))

    def _committed_properties(self, raw: bytes, properties: dict[str, str], topic: str, queue_id: str) -> bytes:
        """Return `properties` as they are stored: the half message's, mostly, without what was put behind them."""
        aside = _aside(topic, queue_id).encode()
        is_plain = raw.endswith(aside) and raw.count(_REAL_TOPIC.encode()) == raw.count(_REAL_QUEUE_ID.encode()) == 1
        if is_plain and props.REAL_TOPIC not in properties:
            return raw[: -len(aside)]
        return self._writer.encode(properties)

    @property
    def can_end_together(self) -> bool:
        """Tell whether one op message may end several."""
        return self._state.compat.transaction_ops_are_batched

    def end(self, *half_queue_offsets: int) -> PutResult:
        """Write down that a half message is ended, or several: at most `ENDED_TOGETHER_MAX`, where that is possible."""
        text = OP_SEPARATOR.join(map(str, half_queue_offsets))
        if self.can_end_together:
            text += OP_SEPARATOR
        body, store_raw = text.encode(), self._state.store_host_raw(None)
        message = Message(
            crc32(body) & BODY_CRC_MASK,
            HALF_QUEUE,
            0,
            0,
            0,
            host_bits(store_raw, store_raw),
            self._state.now_ms(),
            store_raw,
            0,
            store_raw,
            0,
            0,
            body,
            names.OP_HALF_TOPIC,
            self._op_properties_raw,
            1,
        )
        return self._writer.put(message)

    def put_again(self, half: Message, changed: dict[str, str]) -> tuple[Message, PutResult]:
        """Append a copy of a half message with other properties; it stands for the first one from now on."""
        properties = half.properties | changed
        copy = half._replace(flag=0, reconsume_times=0, properties_raw=self._writer.encode(properties))
        result = self._writer.put(copy)
        placed = copy._replace(
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            store_timestamp_ms=result.store_timestamp_ms,
        )
        return placed, result

    def discard(self, half: Message) -> PutResult:
        """Keep a message that nobody will ever commit where people can find it."""
        topic = self._state.topics.find_or_create(names.CHECK_MAX_TIME_TOPIC, 1).topic
        return self._writer.put(half._replace(topic=topic, queue_id=0))

    def ended_by(self, op_queue_offset: int) -> list[int] | None:
        """Return the half messages that an op message ends, by queue offset; None where there is no op message."""
        message = self._read(names.OP_HALF_TOPIC, op_queue_offset)
        return None if message is None else list(ended_queue_offsets(message.body))

    def _read(self, topic: str, queue_offset: int) -> Message | None:
        queue = self._state.store.queue(topic, HALF_QUEUE)
        entry = None if queue is None else queue.entry(queue_offset)
        return None if entry is None else self._state.store.read_at(entry.physical_offset)
