"""Timed delivery: delivers messages scheduled at a timestamp from rmq_sys_wheel_timer.

Mirrors `TimerMessageStore` without its wheel. The log is the source of truth: records state which messages wait, and a
heap in memory has only (wake time, queue offset). A small file saves the progress: the timestamp up to which everything
due was delivered, and the queue offset from which records must be read after a restart. After a crash some messages are
delivered twice and none is lost.

A record must not outlive the retention of the log, so a message with a longer delay is re-appended every two days.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from orbitlog.broker.delayed.timer_handover import WAITING_MAX, JavaTimer, TimerHandOver
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.quarantine import Quarantine
from orbitlog.errors import FormatError, StoreError
from orbitlog.formats import names
from orbitlog.formats.java import string_hash
from orbitlog.formats.records import properties as props
from orbitlog.formats.records import timer_message
from orbitlog.formats.records.message import Message, record_version
from orbitlog.formats.records.real_target import RealTarget, bounded_number, real_target
from orbitlog.formats.tables.timer_progress import TimerProgress
from orbitlog.store.derived.consumequeue import ConsumeQueue

log = logging.getLogger(__name__)

TIMER_QUEUE = 0
STEP_MESSAGES_MAX = 64
TAKE_IN_MAX = 256
_REFUSED_AGAIN_MS = 1_000
_OUTLIVES_MS = 3_000
_CLEARED = (props.REAL_TOPIC, props.REAL_QUEUE_ID)
_ROLL_TIMES_MAX = 10**9
_SCAN_MARKS_MAX = 100_000
_JAVA_ROLL_SLACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message scheduled at a timestamp."""

    queue_offset: int
    topic: str
    unique_id: str
    due_ms: int
    recall_handle: str


class TimedDelivery:
    """The waiting messages, and the steps that load and deliver them."""

    def __init__(
        self,
        state: BrokerState,
        writer: MessageWriter,
        saved: TimerProgress | None = None,
        java_files: TimerHandOver | None = None,
    ) -> None:
        self._state = state
        self._java_files = java_files
        self._java, self._java_crc = java_files.checkpoint() if java_files is not None else (None, 0)
        if saved is not None and saved.timer_check_crc == self._java_crc:
            self._java = None  # the checkpoint that this broker saved: no Java broker has used the store since
        self._writer = writer
        self._quarantine = Quarantine(state, writer)
        self._saved = saved or TimerProgress()
        self._next_to_take = self._saved.first_pending
        self._waiting: list[tuple[int, int]] = []
        self._taken_back: set[str] = set()
        self._taken_to_ms = 0
        self._done_to_ms = self._saved.done_to_ms
        self._first_pending = self._saved.first_pending
        self.is_changed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def step(self, now_ms: int) -> int | None:
        """Load some records and deliver some messages; return the time of the next call, None if none waits."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        if queue is None:
            return None
        self._load(queue)
        has_unread = self._next_to_take < queue.max_offset
        # A recall is stored before its message is due: deliver only up to the time up to which records are loaded.
        blocked_until_ms = self._deliver_due(queue, min(now_ms, self._taken_to_ms) if has_unread else now_ms, now_ms)
        if blocked_until_ms is not None:
            return blocked_until_ms
        if has_unread:
            return now_ms
        return self._waiting[0][0] if self._waiting else None

    # Loading

    def _load(self, queue: ConsumeQueue) -> None:
        self._next_to_take = max(self._next_to_take, queue.min_offset)
        for _ in range(TAKE_IN_MAX):
            if self._next_to_take >= queue.max_offset:
                return
            queue_offset = self._next_to_take
            self._next_to_take += 1
            message = self._read(queue, queue_offset)
            if message is not None:
                self._taken_to_ms = message.store_timestamp_ms
                self._take(queue_offset, message)

    def _take(self, queue_offset: int, message: Message) -> None:
        properties = message.properties
        try:
            due_ms = timer_message.stored_due_ms(properties, message.store_timestamp_ms)
        except FormatError as error:
            log.error("invalid timer message at physical offset %d: %s", message.physical_offset, error)
            due_ms = 0
        wake_ms = timer_message.wake_ms(due_ms, message.store_timestamp_ms)
        if timer_message.DELETE_KEY in properties:
            wake_ms += _OUTLIVES_MS  # the recalled message is delivered in the same second and must find the recall
        if queue_offset < self._saved.queue_offset and wake_ms <= self._saved.done_to_ms:
            return  # delivered before the restart
        if self._is_done_by_java(queue_offset, properties, due_ms, wake_ms):
            return
        key = timer_message.recalled_key(properties)
        if key is not None:
            self._taken_back.add(key)
        else:
            delay_ms = max(due_ms - message.store_timestamp_ms, 0)
            self._state.statistics.observers.timer_loaded(properties.get(props.REAL_TOPIC, ""), delay_ms)
        heapq.heappush(self._waiting, (wake_ms, queue_offset))
        self.is_changed = True

    def _is_done_by_java(self, queue_offset: int, properties: dict[str, str], due_ms: int, wake_ms: int) -> bool:
        """Return whether a Java broker that used the store last has delivered a message."""
        java = self._java
        if java is None or queue_offset >= java.last_queue_offset:
            return False
        # The time at which Java re-appends a message is known to some seconds only; deliver twice rather than never.
        slot_ms = wake_ms + _JAVA_ROLL_SLACK_MS if wake_ms < due_ms else _slot_ms(properties, due_ms)
        return slot_ms < java.last_read_time_ms

    # Delivery

    def _deliver_due(self, queue: ConsumeQueue, due_to_ms: int, now_ms: int) -> int | None:
        """Deliver some due messages; return when to retry if the store refuses messages now."""
        for _ in range(STEP_MESSAGES_MAX):
            if not self._waiting or self._waiting[0][0] > due_to_ms:
                return None
            wake_ms, queue_offset = self._waiting[0]
            message = self._read(queue, queue_offset)
            if message is not None and not self._deliver(message, wake_ms, now_ms):
                return now_ms + _REFUSED_AGAIN_MS
            heapq.heappop(self._waiting)
            self._done_to_ms = wake_ms
            self.is_changed = True
        return now_ms

    def _deliver(self, message: Message, wake_ms: int, now_ms: int) -> bool:
        """Append a message to its real topic, or re-append it; return False if the store refuses it now.

        A message with an invalid target or timestamp is quarantined: it would block every message after it.
        """
        properties = message.properties
        try:
            target = real_target(properties)
            due_ms = timer_message.stored_due_ms(properties, message.store_timestamp_ms)
        except FormatError as error:
            return self._quarantine.move(message, str(error))
        recalled_key = timer_message.recalled_key(properties)
        is_recall = recalled_key is not None
        unique_id = properties.get(props.UNIQ_KEY, "")
        left = self._state.statistics.observers.timer_left
        if not is_recall and timer_message.delete_key(target.topic, unique_id) in self._taken_back:
            left(target.topic, False)
            return True
        if wake_ms < due_ms:
            is_done = self._quarantine.deliver(message, self._rolled_copy(message, properties, due_ms, now_ms))
        elif recalled_key is not None:
            self._taken_back.discard(recalled_key)
            return True
        else:
            copies = self._delivered_copies(message, properties, target, now_ms)
            is_done = self._quarantine.deliver(message, *copies)
        if is_done and not is_recall:
            left(target.topic, wake_ms >= due_ms)
        return is_done

    def _rolled_copy(self, message: Message, properties: dict[str, str], due_ms: int, now_ms: int) -> Message:
        """Return the copy by which a message outlives the retention of its record."""
        properties |= _passed(message, now_ms)
        # Delays relative to the store time must not restart with the time of the copy.
        properties.setdefault(timer_message.DELIVER_MS, str(due_ms))
        times = bounded_number(properties.get(timer_message.ROLL_TIMES, "0"), _ROLL_TIMES_MAX)
        properties[timer_message.ROLL_TIMES] = str((times or 0) + 1)
        return message._replace(properties_raw=self._writer.encode(properties))

    def _delivered_copies(
        self, message: Message, properties: dict[str, str], target: RealTarget, now_ms: int
    ) -> Iterator[Message]:
        """Yield the copy to deliver, and one without the times of its wait, in case its properties leave no room."""
        for name in _CLEARED:
            properties.pop(name, None)
        if timer_message.DELAY_MS in properties or timer_message.DELAY_SECONDS in properties:
            properties.pop(timer_message.DELIVER_MS, None)  # Orbitlog's own, only needed while the message waits
        for added in (_passed(message, now_ms), {}):
            yield message._replace(
                topic=target.topic,
                queue_id=target.queue_id,
                properties_raw=self._writer.encode(properties | added),
                version=record_version(target.topic),
            )

    def settled_to_ms(self, now_ms: int) -> int:
        """Return the timestamp up to which all due messages of the timer queue have been delivered."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        if queue is not None and self._next_to_take < queue.max_offset:
            now_ms = min(now_ms, self._taken_to_ms)  # a record that is not loaded yet is due after its store time
        return min(now_ms, self._waiting[0][0] - 1) if self._waiting else now_ms

    def take_all(self) -> None:
        """Load every record of the timer queue."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        while queue is not None and self._next_to_take < queue.max_offset:
            self._load(queue)

    # Inspection and saving

    @property
    def unloaded(self) -> tuple[int, int]:
        """Number of records that are not loaded yet, and the queue offset of the first."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        return (0 if queue is None else max(queue.max_offset - self._next_to_take, 0)), self._next_to_take

    @property
    def wake_times_ms(self) -> list[int]:
        """Times at which the waiting messages are due, in no order."""
        return [wake_ms for wake_ms, _ in self._waiting]

    def waiting(self, limit: int = STEP_MESSAGES_MAX) -> list[WaitingMessage]:
        """Return the messages that are due next."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        messages: list[WaitingMessage] = []
        for _, queue_offset in heapq.nsmallest(limit, self._waiting):
            message = None if queue is None else self._read(queue, queue_offset)
            if message is None or timer_message.DELETE_KEY in message.properties:
                continue
            try:
                described = self._described(queue_offset, message)
            except FormatError:
                continue  # it will be quarantined when it is due
            if timer_message.delete_key(described.topic, described.unique_id) not in self._taken_back:
                messages.append(described)
        return messages

    def _described(self, queue_offset: int, message: Message) -> WaitingMessage:
        properties = message.properties
        topic, unique_id = properties.get(props.REAL_TOPIC, ""), properties.get(props.UNIQ_KEY, "")
        due_ms = timer_message.stored_due_ms(properties, message.store_timestamp_ms)
        handle = recall_handle(self._state.broker_name, properties)
        return WaitingMessage(queue_offset, topic, unique_id, due_ms, str(handle))

    def snapshot(self) -> TimerProgress:
        """Return the progress to save."""
        self.is_changed = False
        done_to_ms = self._waiting[0][0] - 1 if self._waiting else self._done_to_ms
        if len(self._waiting) <= _SCAN_MARKS_MAX:
            self._first_pending = min((queue_offset for _, queue_offset in self._waiting), default=self._next_to_take)
        return TimerProgress(done_to_ms, self._next_to_take, self._first_pending, self._known_crc)

    @property
    def _known_crc(self) -> int:
        """The CRC of Java's checkpoint, once every message that it covers has been loaded."""
        is_used = self._java is None or self._next_to_take >= self._java.last_queue_offset
        return self._java_crc if is_used else self._saved.timer_check_crc

    # Hand-over to a Java broker

    def hand_over(self, now_ms: int) -> None:
        """Write Java's timer files, in case a Java broker uses the store next."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        if self._java_files is None or queue is None or not self._state.compat.config_has_5x_fields:
            return
        last = self._for_java(queue, 0, self._next_to_take - 1) if self._next_to_take > queue.min_offset else None
        if last is None:
            return
        if len(self._waiting) > WAITING_MAX:
            log.warning("no timer files for a Java broker: %d waiting messages are too many", len(self._waiting))
            return
        timers = (self._for_java(queue, wake_ms, queue_offset) for wake_ms, queue_offset in self._waiting)
        try:
            self._java_crc = self._java_files.write((timer for timer in timers if timer is not None), last, now_ms)
        except StoreError as error:
            log.warning("could not write the timer files for a Java broker: %s", error)
            return
        self._java = None
        self.is_changed = True

    def _for_java(self, queue: ConsumeQueue, wake_ms: int, queue_offset: int) -> JavaTimer | None:
        message = self._read(queue, queue_offset)
        if message is None:
            return None
        properties, stored_ms = message.properties, message.store_timestamp_ms
        try:
            due_ms = timer_message.stored_due_ms(properties, stored_ms)
        except FormatError:
            due_ms = stored_ms
        is_delete = timer_message.DELETE_KEY in properties
        rolls = wake_ms - (_OUTLIVES_MS if is_delete else 0) < due_ms
        slot_ms = wake_ms - wake_ms % timer_message.PRECISION_MS if rolls else _slot_ms(properties, due_ms)
        topic_hash = string_hash(properties.get(props.REAL_TOPIC, ""))
        location = (queue_offset, message.physical_offset, message.size_bytes)
        return JavaTimer(*location, topic_hash, stored_ms, slot_ms, rolls, is_delete)

    def _read(self, queue: ConsumeQueue, queue_offset: int) -> Message | None:
        entry = queue.entry(queue_offset)
        message = None if entry is None else self._state.store.read_at(entry.physical_offset)
        if message is None:
            log.error("skipping an unreadable timer message at queue offset %d", queue_offset)
        return message


def _passed(message: Message, now_ms: int) -> dict[str, str]:
    """Return the properties that record when a message was stored for its wait, and when it ended."""
    return {timer_message.ENQUEUE_MS: str(message.store_timestamp_ms), timer_message.DEQUEUE_MS: str(now_ms)}


def _slot_ms(properties: dict[str, str], due_ms: int) -> int:
    """Return the second of Java's wheel in which a message is delivered."""
    text = properties.get(timer_message.OUT_MS, "")
    return int(text) if text.isdecimal() and len(text) <= 18 else due_ms - due_ms % timer_message.PRECISION_MS


def recall_handle(broker_name: str, properties: dict[str, str]) -> timer_message.RecallHandle:
    """Return the handle by which a waiting message is recalled."""
    moment_ms = timer_message.stored_out_ms(properties) + 1
    return timer_message.RecallHandle(
        properties.get(props.REAL_TOPIC, ""), broker_name, moment_ms, properties.get(props.UNIQ_KEY, "")
    )
