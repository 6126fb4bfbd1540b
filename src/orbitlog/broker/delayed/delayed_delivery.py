"""Messages that wait in SCHEDULE_TOPIC_XXXX, delivered when they are due. Mirrors `ScheduleMessageService`.

One queue a level, and in each the messages are in the order in which they are due. `deliver_due` is a step that the
caller takes: how far each level is goes to `delayOffset.json` now and then, so after a crash some are delivered again,
and none is lost.
"""

from __future__ import annotations

import logging

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.tables.topics import next_version
from orbitlog.formats import names
from orbitlog.formats.delay_levels import LEVELS_MAX
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message, record_version
from orbitlog.formats.tables.offset_tables import DelayOffsets
from orbitlog.store.derived.consumequeue import ConsumeQueue

log = logging.getLogger(__name__)

STEP_MESSAGES_MAX = 64
_REFUSED_AGAIN_MS = 1_000


class DelayedDelivery:
    """How far each level is, and the step that takes it further."""

    def __init__(self, state: BrokerState, writer: MessageWriter, saved: DelayOffsets | None = None) -> None:
        self._state = state
        self._writer = writer
        saved = saved or DelayOffsets()
        self._offsets = dict(saved.offsets)
        self._data_version = saved.data_version
        self._levels: tuple[int, ...] | None = None
        self.is_changed = False

    def deliver_due(self, now_ms: int) -> int | None:
        """Deliver some of what is due; returns when to be called again, None where nothing waits."""
        next_ms: int | None = None
        if self._levels is None:
            self._levels = self._all_levels()
        for level in self._levels:
            queue = self._state.store.queue(names.SCHEDULE_TOPIC, level - 1)
            if queue is None:
                continue
            due_ms = self._deliver_level(level, queue, now_ms)
            if due_ms is not None:
                next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
        return next_ms

    def _all_levels(self) -> tuple[int, ...]:
        """Return the levels of the setting, and those that it had once and in which messages were left."""
        count, find = self._state.delay_levels.max_level, self._state.store.queue
        former = [level for level in range(count + 1, LEVELS_MAX + 1) if find(names.SCHEDULE_TOPIC, level - 1)]
        return *range(1, count + 1), *former

    def _deliver_level(self, level: int, queue: ConsumeQueue, now_ms: int) -> int | None:
        """Deliver some of one level; returns when its next one is due."""
        queue_offset = min(max(self._offsets.get(level, 0), queue.min_offset), queue.max_offset)
        for _ in range(STEP_MESSAGES_MAX):
            entry = queue.entry(queue_offset) if queue_offset < queue.max_offset else None
            if entry is None:
                break
            due_ms = self._due_ms(level, entry.tags_code, now_ms)
            if due_ms > now_ms:
                return due_ms
            message = self._state.store.read_at(entry.physical_offset)
            if message is None:
                log.error(
                    "a delayed message at physical offset %d cannot be read; it is passed over", entry.physical_offset
                )
            elif not self._deliver(message):
                return now_ms + _REFUSED_AGAIN_MS
            queue_offset += 1
            self._offsets[level] = queue_offset
            self.is_changed = True
        return now_ms if queue_offset < queue.max_offset else None

    def _due_ms(self, level: int, tags_code: int, now_ms: int) -> int:
        """Return when a message is due: not later than its level allows, should the clock have been set back."""
        if level > self._state.delay_levels.max_level:
            return tags_code  # how long it may wait is not known any more
        latest_ms = self._state.delay_levels.deliver_timestamp_ms(level, now_ms)
        return tags_code if tags_code <= latest_ms else now_ms

    def _deliver(self, message: Message) -> bool:
        """Put a message where it was sent to; False if the store does not take it now."""
        properties = message.properties
        topic = properties.get(props.REAL_TOPIC, "")
        queue_id = properties.get(props.REAL_QUEUE_ID, "")
        if not topic or not queue_id.isdecimal():
            log.error("a delayed message at %d does not say where it belongs; it is dropped", message.physical_offset)
            return True
        if topic in (names.HALF_TOPIC, names.SCHEDULE_TOPIC):
            log.error("a delayed message at %d claims to belong to %s; it is dropped", message.physical_offset, topic)
            return True
        # The properties stay as they are, the level among them: consumers of Java's broker see it, too.
        result = self._writer.put(message._replace(topic=topic, queue_id=int(queue_id), version=record_version(topic)))
        if not result.is_stored:
            log.warning("a delayed message for %s waits on: %s", topic, result.reason)
        return result.is_stored

    def delivered_to(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def snapshot(self) -> DelayOffsets:
        """Return the table to save."""
        self._data_version = next_version(self._data_version, self._state.now_ms())
        self.is_changed = False
        return DelayOffsets(dict(sorted(self._offsets.items())), self._data_version)
