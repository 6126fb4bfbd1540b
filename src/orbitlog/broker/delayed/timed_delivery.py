"""Messages that wait in rmq_sys_wheel_timer for a moment of their own. Mirrors `TimerMessageStore`, without its wheel.

The log is the truth: which messages wait is what their records say, and a heap in memory holds only (when to look
again, queue offset). How far delivery is goes to a small file: everything to be looked at up to a moment was, and from
which queue offset on records must be read again after a restart. After a crash some are delivered twice, none is lost.

A record must not grow older than the log is kept, so a message for a distant day is appended again every two days.
"""

from __future__ import annotations

import heapq
import logging
from dataclasses import dataclass

from orbitlog.broker.delayed.timer_handover import WAITING_MAX, JavaTimer, TimerHandOver
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.errors import FormatError, StoreError
from orbitlog.formats import names
from orbitlog.formats.java import string_hash
from orbitlog.formats.records import properties as props
from orbitlog.formats.records import timer_message
from orbitlog.formats.records.message import Message, record_version
from orbitlog.formats.tables.timer_progress import TimerProgress
from orbitlog.store.derived.consumequeue import ConsumeQueue

log = logging.getLogger(__name__)

TIMER_QUEUE = 0
STEP_MESSAGES_MAX = 64
TAKE_IN_MAX = 256
_REFUSED_AGAIN_MS = 1_000
_OUTLIVES_MS = 3_000
_CLEARED = (props.REAL_TOPIC, props.REAL_QUEUE_ID)
_SCAN_MARKS_MAX = 100_000
_JAVA_ROLL_SLACK_MS = 60_000


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that waits for its moment."""

    queue_offset: int
    topic: str
    unique_id: str
    due_ms: int
    recall_handle: str


class TimedDelivery:
    """What waits, and the steps that take it in and turn it out."""

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
            self._java = None  # as it was when we saved: no Java broker has used the store since
        self._writer = writer
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
        """Take some in and turn some out; returns when to be called again, None where nothing waits."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        if queue is None:
            return None
        self._take_in(queue)
        is_behind = self._next_to_take < queue.max_offset
        # What takes a message back was stored before its time: so much of the queue must have been read by then.
        blocked_until_ms = self._turn_out(queue, min(now_ms, self._taken_to_ms) if is_behind else now_ms, now_ms)
        if blocked_until_ms is not None:
            return blocked_until_ms
        if is_behind:
            return now_ms
        return self._waiting[0][0] if self._waiting else None

    # In

    def _take_in(self, queue: ConsumeQueue) -> None:
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
        except (FormatError, KeyError) as error:
            log.error("a timer message at %d does not say when: %s", message.physical_offset, error)
            due_ms = 0
        wake_ms = timer_message.wake_ms(due_ms, message.store_timestamp_ms)
        if timer_message.DELETE_KEY in properties:
            wake_ms += _OUTLIVES_MS  # what it takes back is turned out in the same second, and must meet it
        if queue_offset < self._saved.queue_offset and wake_ms <= self._saved.done_to_ms:
            return  # it was turned out before the restart
        if self._is_done_by_java(queue_offset, properties, due_ms, wake_ms):
            return
        key = properties.get(timer_message.DELETE_KEY)
        if key is not None:
            self._taken_back.add(key)
        heapq.heappush(self._waiting, (wake_ms, queue_offset))
        self.is_changed = True

    def _is_done_by_java(self, queue_offset: int, properties: dict[str, str], due_ms: int, wake_ms: int) -> bool:
        """Tell whether a Java broker that used the store last has turned a message out already."""
        java = self._java
        if java is None or queue_offset >= java.last_queue_offset:
            return False
        # When Java appends a message again is known to some seconds only; rather twice than not at all.
        slot_ms = wake_ms + _JAVA_ROLL_SLACK_MS if wake_ms < due_ms else _slot_ms(properties, due_ms)
        return slot_ms < java.last_read_time_ms

    # Out

    def _turn_out(self, queue: ConsumeQueue, due_to_ms: int, now_ms: int) -> int | None:
        """Turn out some of what is due; returns when to try again if the store does not take messages now."""
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
        """Put a message where it belongs, or carry it on; False if the store does not take it now."""
        properties = message.properties
        topic, queue_id = properties.get(props.REAL_TOPIC, ""), properties.get(props.REAL_QUEUE_ID, "")
        if not topic or not queue_id.isdecimal() or topic == names.TIMER_TOPIC:
            log.error("a timer message at %d does not say where it belongs; it is dropped", message.physical_offset)
            return True
        is_recall = timer_message.DELETE_KEY in properties  # it has the id of what it takes back
        if not is_recall and timer_message.is_taken_back(self._taken_back, topic, properties.get(props.UNIQ_KEY, "")):
            return True
        rolls = wake_ms < timer_message.stored_due_ms(properties, message.store_timestamp_ms)
        if not rolls and timer_message.DELETE_KEY in properties:
            self._taken_back.discard(properties[timer_message.DELETE_KEY])
            return True
        result = self._writer.put(self._turned(message, properties, now_ms, rolls=rolls))
        if not result.is_stored:
            log.warning("a timer message for %s waits on: %s", topic, result.reason)
        return result.is_stored

    def _turned(self, message: Message, properties: dict[str, str], now_ms: int, *, rolls: bool) -> Message:
        topic, queue_id = properties[props.REAL_TOPIC], int(properties[props.REAL_QUEUE_ID])
        properties[timer_message.ENQUEUE_MS] = str(message.store_timestamp_ms)
        properties[timer_message.DEQUEUE_MS] = str(now_ms)
        if rolls:
            # What counts from the moment of storing must not count from that of the copy.
            due_ms = timer_message.stored_due_ms(properties, message.store_timestamp_ms)
            properties.setdefault(timer_message.DELIVER_MS, str(due_ms))
            times = properties.get(timer_message.ROLL_TIMES, "0")
            properties[timer_message.ROLL_TIMES] = str(int(times) + 1 if times.isdecimal() and len(times) < 9 else 1)
            return message._replace(properties_raw=self._writer.encode(properties))
        for name in _CLEARED:
            properties.pop(name, None)
        if timer_message.DELAY_MS in properties or timer_message.DELAY_SECONDS in properties:
            properties.pop(timer_message.DELIVER_MS, None)  # ours, for the way
        return message._replace(
            topic=topic,
            queue_id=queue_id,
            properties_raw=self._writer.encode(properties),
            version=record_version(topic),
        )

    def settled_to_ms(self, now_ms: int) -> int:
        """Return the timestamp up to which every message of the timer queue that was due has been delivered."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        if queue is not None and self._next_to_take < queue.max_offset:
            now_ms = min(now_ms, self._taken_to_ms)  # a message that is not taken in yet is due after it was stored
        return min(now_ms, self._waiting[0][0] - 1) if self._waiting else now_ms

    def take_all(self) -> None:
        """Take in everything that is in the timer queue."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        while queue is not None and self._next_to_take < queue.max_offset:
            self._take_in(queue)

    # Looking at it, and saving it

    def waiting(self, limit: int = STEP_MESSAGES_MAX) -> list[WaitingMessage]:
        """Return the messages that are due next."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        found: list[WaitingMessage] = []
        for _, queue_offset in heapq.nsmallest(limit, self._waiting):
            message = None if queue is None else self._read(queue, queue_offset)
            if message is None or timer_message.DELETE_KEY in message.properties:
                continue
            described = self._described(queue_offset, message)
            if not timer_message.is_taken_back(self._taken_back, described.topic, described.unique_id):
                found.append(described)
        return found

    def _described(self, queue_offset: int, message: Message) -> WaitingMessage:
        properties = message.properties
        topic, unique_id = properties.get(props.REAL_TOPIC, ""), properties.get(props.UNIQ_KEY, "")
        due_ms = timer_message.stored_due_ms(properties, message.store_timestamp_ms)
        handle = recall_handle(self._state.broker_name, properties)
        return WaitingMessage(queue_offset, topic, unique_id, due_ms, str(handle))

    def snapshot(self) -> TimerProgress:
        """Return what to save."""
        self.is_changed = False
        done_to_ms = self._waiting[0][0] - 1 if self._waiting else self._done_to_ms
        if len(self._waiting) <= _SCAN_MARKS_MAX:
            self._first_pending = min((queue_offset for _, queue_offset in self._waiting), default=self._next_to_take)
        return TimerProgress(done_to_ms, self._next_to_take, self._first_pending, self._known_crc)

    @property
    def _known_crc(self) -> int:
        """The CRC of Java's checkpoint once everything that it tells of has been looked at."""
        is_used = self._java is None or self._next_to_take >= self._java.last_queue_offset
        return self._java_crc if is_used else self._saved.timer_check_crc

    # For a Java broker

    def hand_over(self, now_ms: int) -> None:
        """Write Java's timer files, should a Java broker be the next to use the store."""
        queue = self._state.store.queue(names.TIMER_TOPIC, TIMER_QUEUE)
        if self._java_files is None or queue is None or not self._state.compat.config_has_5x_fields:
            return
        last = self._for_java(queue, 0, self._next_to_take - 1) if self._next_to_take > queue.min_offset else None
        if last is None:
            return
        if len(self._waiting) > WAITING_MAX:
            log.warning("%d messages wait, too many to write them for a Java broker", len(self._waiting))
            return
        found = (self._for_java(queue, wake_ms, queue_offset) for wake_ms, queue_offset in self._waiting)
        try:
            self._java_crc = self._java_files.write((each for each in found if each is not None), last, now_ms)
        except StoreError as error:
            log.warning("the timer files for a Java broker cannot be written: %s", error)
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
        except (FormatError, KeyError):
            due_ms = stored_ms
        is_delete = timer_message.DELETE_KEY in properties
        rolls = wake_ms - (_OUTLIVES_MS if is_delete else 0) < due_ms
        slot_ms = wake_ms - wake_ms % timer_message.PRECISION_MS if rolls else _slot_ms(properties, due_ms)
        topic_hash = string_hash(properties.get(props.REAL_TOPIC, ""))
        place = (queue_offset, message.physical_offset, message.size_bytes)
        return JavaTimer(*place, topic_hash, stored_ms, slot_ms, rolls, is_delete)

    def _read(self, queue: ConsumeQueue, queue_offset: int) -> Message | None:
        entry = queue.entry(queue_offset)
        message = None if entry is None else self._state.store.read_at(entry.physical_offset)
        if message is None:
            log.error("the timer message with queue offset %d cannot be read; it is passed over", queue_offset)
        return message


def _slot_ms(properties: dict[str, str], due_ms: int) -> int:
    """Return the second of Java's wheel in which a message is turned out."""
    text = properties.get(timer_message.OUT_MS, "")
    return int(text) if text.isdecimal() and len(text) <= 18 else due_ms - due_ms % timer_message.PRECISION_MS


def recall_handle(broker_name: str, properties: dict[str, str]) -> timer_message.RecallHandle:
    """Return the handle that takes a message back which waits for its moment."""
    moment_ms = int(properties[timer_message.OUT_MS]) + 1
    return timer_message.RecallHandle(
        properties[props.REAL_TOPIC], broker_name, moment_ms, properties.get(props.UNIQ_KEY, "")
    )
