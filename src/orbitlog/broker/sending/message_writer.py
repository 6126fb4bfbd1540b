"""Message writer: the only part of the broker that appends to the store.

Sends, retries, replies, due delayed messages, transactions and POP check points all go through it, so that
`StoredMessages` sees each of them. It also redirects scheduled messages. Mirrors Java's
`HookUtils.handleScheduleMessage` and the end of `SendMessageProcessor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.stored_messages import StoredMessages
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats import names
from orbitlog.formats.delay_levels import parse_level
from orbitlog.formats.records import properties as props
from orbitlog.formats.records import timer_message
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.formats.records.record_template import Row
from orbitlog.store.appending.put_result import AppendedMembers, PutResult, PutStatus
from orbitlog.wire.codes import ResponseCode

_TIMER_PROPERTIES = (timer_message.DELIVER_MS, timer_message.DELAY_MS, timer_message.DELAY_SECONDS)
_REFUSED = {
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.CREATE_MAPPED_FILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
}


class MessageWriter:
    """Appends messages to the store of one broker."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._store = state.store
        self.stored = StoredMessages(state)
        """Called after each append; a broker with metrics replaces it by one that counts more."""
        self.has_separator = state.compat.trailing_property_separator

    def put(self, message: Message) -> PutResult:
        """Store one message."""
        result = self._store.append(message)
        if result.physical_offset >= 0:
            self.stored.note(message, 1, result.size_bytes)
        return result

    def put_all(self, messages: Sequence[Message]) -> list[PutResult]:
        """Store the messages of one batch, all of one topic: all of them or none."""
        results = self._store.append_batch(messages)
        if results[0].physical_offset >= 0:
            self.stored.note(messages[0], len(results), sum(result.size_bytes for result in results))
        return results

    def put_members(self, batch: Message, added: bytes) -> AppendedMembers | None:
        """Store a batch without decoding its members; None if nothing was stored and `put_all` has to do it."""
        appended = self._store.append_members(batch, added)
        if appended is not None:
            self.stored.note(batch, len(appended.physical_offsets), appended.size_bytes)
        return appended

    def put_rows(self, rows: Sequence[Row], is_one_topic: bool) -> list[tuple[int, int]]:
        """Store the first rows of a run; return the physical and the queue offset of each that was stored."""
        places = self._store.append_run(rows)
        if places:
            self.stored.note_rows(rows, places, is_one_topic)
        return places

    def encode(self, properties: dict[str, str]) -> bytes:
        """Return the bytes of properties in the form of the Java version that the store is compatible with."""
        return encode_properties(properties, trailing_separator=self.has_separator)

    def schedule(self, message: Message, properties: dict[str, str]) -> Message:
        """Return the message to store: a scheduled message goes to the system topic of delayed or timer messages.

        A delay level above the highest counts as the highest. Changes `properties`.
        """
        level = parse_level(properties.get(props.DELAY, "")) or 0
        if level <= 0:
            return self._timed(message, properties) if timer_message.wants_timer(properties) else message
        level = self._state.delay_levels.clamp(level)
        for name in _TIMER_PROPERTIES:
            properties.pop(name, None)
        properties[props.DELAY] = str(level)
        properties[props.REAL_TOPIC] = message.topic
        properties[props.REAL_QUEUE_ID] = str(message.queue_id)
        return message._replace(
            topic=names.SCHEDULE_TOPIC, queue_id=level - 1, properties_raw=self.encode(properties), version=1
        )

    def _timed(self, message: Message, properties: dict[str, str]) -> Message:
        """Return a timer message for the timer topic; the message itself if its timestamp has passed.

        Raise `RequestRefused` if timer messages are disabled, or the timestamp is invalid or too far ahead.
        """
        settings, now_ms = self._state.settings, self._state.now_ms()
        if not settings[keys.TIMER_ENABLED]:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        try:
            due_ms = timer_message.due_ms(properties, now_ms)
        except FormatError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"timer message illegal: {error}") from None
        latest_s = settings[keys.TIMER_MAX_DELAY_S]
        if due_ms - now_ms > latest_s * 1000:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"timer message illegal, the delay time should not be bigger than the max delay {latest_s * 1000}ms",
            )
        if due_ms <= now_ms:
            return message
        properties[timer_message.OUT_MS] = str(timer_message.out_ms(due_ms))
        properties[props.REAL_TOPIC] = message.topic
        properties[props.REAL_QUEUE_ID] = str(message.queue_id)
        return message._replace(topic=names.TIMER_TOPIC, queue_id=0, properties_raw=self.encode(properties), version=1)


def refuse(result: PutResult) -> NoReturn:
    """Raise `RequestRefused` with the reason why a message was not stored."""
    raise RequestRefused(_REFUSED[result.status], result.reason or result.status.value)
