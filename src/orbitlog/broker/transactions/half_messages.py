"""Half messages: stored in a system topic until their producer commits or rolls back.

A half message is in RMQ_SYS_TRANS_HALF_TOPIC and is never changed. An op message in RMQ_SYS_TRANS_OP_HALF_TOPIC
lists half messages that have ended, by their queue offsets. A half message that no op message lists is pending. Both
topics are in the form of a Java broker, which can take the store over. Mirrors `TransactionalMessageBridge`.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from orbitlog.broker.runtime.broker_state import BrokerState, host_bits
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.quarantine import Quarantine
from orbitlog.formats import names
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import BODY_CRC_MASK, Message, record_version
from orbitlog.formats.records.properties import decode_properties
from orbitlog.formats.records.real_target import bounded_number, real_target
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
_RECENT_MAX = 1024
_RECENT_BODY_BYTES_MAX = 4096
_REAL_TOPIC, _REAL_QUEUE_ID = props.REAL_TOPIC + props.NAME_END, props.REAL_QUEUE_ID + props.NAME_END
_TRANSACTION_ID = props.TRANSACTION_ID + props.NAME_END
_OP_PROPERTIES = {props.TAGS: "d", props.WAIT: "true"}


def origin_of(half: Message, properties: dict[str, str] | None = None) -> int:
    """Return the queue offset of the first copy of a half message.

    Pass `properties` if they are decoded already: decoding is expensive.
    """
    first = (half.properties if properties is None else properties).get(PREPARED_QUEUE_OFFSET, "")
    origin = bounded_number(first, LONG_MAX)
    return half.queue_offset if origin is None else origin


class RecentHalf(NamedTuple):
    """A half message that was stored recently, and the values of its commit."""

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
        """Return the half message, without its store timestamp."""
        return self.sample._replace(
            body_crc=crc32(self.body) & BODY_CRC_MASK,
            queue_id=HALF_QUEUE,
            queue_offset=self.queue_offset,
            physical_offset=physical_offset,
            born_timestamp_ms=self.born_ms,
            body=self.body,
            properties_raw=self.properties_raw,
        )


def _target_properties(topic: str, queue_id: int | str) -> str:
    """Return the properties that record the topic and queue of a message; they follow its own properties."""
    return f"{_REAL_TOPIC}{topic}{props.PROPERTY_END}{_REAL_QUEUE_ID}{queue_id}{props.PROPERTY_END}"


class HalfMessages:
    """Stores, commits and ends half messages."""

    def __init__(self, state: BrokerState, writer: MessageWriter) -> None:
        self._state = state
        self._writer = writer
        self.quarantine = Quarantine(state, writer)
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
        """Return the bytes of a half message's properties, with its topic and queue; changes `properties`."""
        for name in (PREPARED_QUEUE_OFFSET, CHECK_TIMES):
            properties.pop(name, None)  # set by a client, they would refer to the half message of another one
        unique_id = properties.get(props.UNIQ_KEY)
        if unique_id and self._state.compat.half_message_has_transaction_id:
            properties[props.TRANSACTION_ID] = unique_id
        properties[props.REAL_TOPIC] = topic
        properties[props.REAL_QUEUE_ID] = str(queue_id)
        return self._writer.encode(properties)

    def joined_properties(self, text: str, unique_id: str, topic: str, queue_id: int) -> tuple[bytes, bytes]:
        """Return the properties of a half message and of its commit, joined without decoding them.

        `text` are the properties as sent, each with its end, and those that every message gets.
        """
        compat, cut = self._state.compat, None if self._writer.has_separator else -1
        if compat.half_message_has_transaction_id:
            text += f"{_TRANSACTION_ID}{unique_id}{props.PROPERTY_END}"
        raw = f"{text}{_target_properties(topic, queue_id)}".encode()[:cut]
        return raw, raw if compat.commit_keeps_real_topic else text.encode()[:cut]

    def remember(self, physical_offset: int, half: RecentHalf) -> None:
        """Keep a half message that was just stored: most end at once, and then need not be read from the log."""
        if len(half.body) <= _RECENT_BODY_BYTES_MAX:
            recent = self._recent
            recent[physical_offset] = half
            if len(recent) > _RECENT_MAX:
                del recent[next(iter(recent))]

    def recent(self, physical_offset: int) -> RecentHalf | None:
        """Return a half message that is kept; None before readers may see it (it is not flushed with SYNC_FLUSH)."""
        return self._recent.get(physical_offset) if physical_offset < self._state.store.confirmed_to else None

    def forget(self, physical_offset: int) -> None:
        self._recent.pop(physical_offset, None)

    def find(self, physical_offset: int) -> tuple[Message, dict[str, str]] | None:
        """Return the half message at an offset and its properties; None if there is no half message.

        One that was kept has no store timestamp, which no caller uses.
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
        """Store the message in its own topic; does not end the half message. Changes its `properties`.

        Raise a `BadField` if the properties name no valid target.
        """
        topic, queue_id = real_target(properties)
        if not self._state.compat.commit_keeps_real_topic:
            del properties[props.REAL_TOPIC], properties[props.REAL_QUEUE_ID]
        message = half._replace(
            topic=topic,
            queue_id=queue_id,
            sys_flag=flags.with_transaction_type(half.sys_flag, TransactionType.COMMIT),
            prepared_transaction_offset=half.physical_offset,
            properties_raw=self._committed_properties(half.properties_raw, properties, topic, queue_id),
            version=record_version(topic),
        )
        return self._writer.put(self._writer.schedule(message, properties))

    def _committed_properties(self, raw: bytes, properties: dict[str, str], topic: str, queue_id: int) -> bytes:
        """Return the bytes of `properties`: usually those of the half message without their last two items."""
        target = _target_properties(topic, queue_id).encode()
        is_plain = raw.endswith(target) and raw.count(_REAL_TOPIC.encode()) == raw.count(_REAL_QUEUE_ID.encode()) == 1
        if is_plain and props.REAL_TOPIC not in properties:
            return raw[: -len(target)]
        return self._writer.encode(properties)

    @property
    def can_end_together(self) -> bool:
        """Return whether one op message may end several half messages."""
        return self._state.compat.transaction_ops_are_batched

    def end(self, *half_queue_offsets: int) -> PutResult:
        """Store an op message that ends half messages: one, or up to `ENDED_TOGETHER_MAX` if `can_end_together`."""
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

    def append_copy(self, half: Message, changed: dict[str, str]) -> tuple[Message, PutResult]:
        """Append a copy of a half message with other properties, which replaces it."""
        properties = half.properties | changed
        copy = half._replace(flag=0, reconsume_times=0, properties_raw=self._writer.encode(properties))
        result = self._writer.put(copy)
        placed = copy._replace(
            queue_offset=result.queue_offset,
            physical_offset=result.physical_offset,
            store_timestamp_ms=result.store_timestamp_ms,
        )
        return placed, result

    def discard(self, half: Message) -> bool:
        """Store a half message that was checked too often in TRANS_CHECK_MAX_TIME_TOPIC, for operators.

        Return False if the store refuses it now.
        """
        topic = self._state.topics.find_or_create(names.CHECK_MAX_TIME_TOPIC, 1).topic
        return self.quarantine.deliver(half, half._replace(topic=topic, queue_id=0))

    def ended_by(self, op_queue_offset: int) -> list[int] | None:
        """Return the queue offsets of the half messages that an op message ends; None if there is no op message."""
        message = self._read(names.OP_HALF_TOPIC, op_queue_offset)
        return None if message is None else list(ended_queue_offsets(message.body))

    def _read(self, topic: str, queue_offset: int) -> Message | None:
        queue = self._state.store.queue(topic, HALF_QUEUE)
        entry = None if queue is None else queue.entry(queue_offset)
        return None if entry is None else self._state.store.read_at(entry.physical_offset)
