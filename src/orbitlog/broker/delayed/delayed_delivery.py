"""Delayed delivery: delivers messages of delay levels from SCHEDULE_TOPIC_XXXX. Mirrors `ScheduleMessageService`.

Each level has a queue, in the order in which its messages are due. The caller runs `deliver_due` in steps. The offset
of each level is saved to `delayOffset.json` periodically, so after a crash some messages are delivered twice and none
is lost.
"""

from __future__ import annotations

import logging

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.sending.quarantine import Quarantine
from orbitlog.broker.tables.topics import next_version
from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats.delay_levels import LEVELS_MAX
from orbitlog.formats.records.message import Message, record_version
from orbitlog.formats.records.real_target import real_target
from orbitlog.formats.tables.offset_tables import DelayOffsets
from orbitlog.store.derived.consumequeue import ConsumeQueue

log = logging.getLogger(__name__)

STEP_MESSAGES_MAX = 64
_RETRY_MS = 1_000


class DelayedDelivery:
    """The offsets of all levels, and the step that advances them."""

    def __init__(self, state: BrokerState, writer: MessageWriter, saved: DelayOffsets | None = None) -> None:
        self._state = state
        self._quarantine = Quarantine(state, writer)
        saved = saved or DelayOffsets()
        self._offsets = dict(saved.offsets)
        self._data_version = saved.data_version
        self._levels: tuple[int, ...] | None = None
        self.is_changed = False

    def deliver_due(self, now_ms: int) -> int | None:
        """Deliver some due messages; return the time of the next call, None if no message waits."""
        next_ms: int | None = None
        if self._levels is None:
            self._levels = self._all_levels()
            self._correct_offsets()
        for level in self._levels:
            queue = self._state.store.queue(names.SCHEDULE_TOPIC, level - 1)
            if queue is None:
                continue
            due_ms = self._deliver_level(level, queue, now_ms)
            if due_ms is not None:
                next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
        return next_ms

    def _correct_offsets(self) -> None:
        """Set offsets back that are past the end of their queue, as Java does: later messages would be skipped."""
        for level, queue_offset in self._offsets.items():
            queue = self._state.store.queue(names.SCHEDULE_TOPIC, level - 1)
            end = 0 if queue is None else queue.max_offset
            if queue_offset > end:
                log.warning("the offset of delay level %d is %d: continuing at the end, %d", level, queue_offset, end)
                self._offsets[level] = end
                self.is_changed = True

    def _all_levels(self) -> tuple[int, ...]:
        """Return the levels of the setting, and levels beyond it that have a queue from an earlier setting."""
        count, find = self._state.delay_levels.max_level, self._state.store.queue
        former = [level for level in range(count + 1, LEVELS_MAX + 1) if find(names.SCHEDULE_TOPIC, level - 1)]
        return *range(1, count + 1), *former

    def _deliver_level(self, level: int, queue: ConsumeQueue, now_ms: int) -> int | None:
        """Deliver some messages of one level; return when its next one is due."""
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
                log.error("skipping an unreadable delayed message at physical offset %d", entry.physical_offset)
            elif not self._deliver(message):
                return now_ms + _RETRY_MS
            queue_offset += 1
            self._offsets[level] = queue_offset
            self.is_changed = True
        return now_ms if queue_offset < queue.max_offset else None

    def _due_ms(self, level: int, tags_code: int, now_ms: int) -> int:
        """Return when a message is due: at most its level's delay from now, in case the clock was set back."""
        if level > self._state.delay_levels.max_level:
            return tags_code  # the delay of a former level is unknown
        latest_ms = self._state.delay_levels.deliver_timestamp_ms(level, now_ms)
        return tags_code if tags_code <= latest_ms else now_ms

    def _deliver(self, message: Message) -> bool:
        """Append a message to its real topic; quarantine it if it has none. Return False if the store refuses it now.

        The properties are kept, also the level: consumers of a Java broker see it.
        """
        try:
            topic, queue_id = real_target(message.properties)
        except FormatError as error:
            return self._quarantine.move(message, str(error))
        copy = message._replace(topic=topic, queue_id=queue_id, version=record_version(topic))
        return self._quarantine.deliver(message, copy)

    def copy_from(self, copied: DelayOffsets) -> None:
        """Take over the offsets of the master."""
        if self._offsets != copied.offsets:
            self._offsets = dict(copied.offsets)
            self._data_version = copied.data_version
            self._levels = None  # to be compared with the queues again
            self.is_changed = True

    def delivered_to(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def snapshot(self) -> DelayOffsets:
        """Return the table to save."""
        self._data_version = next_version(self._data_version, self._state.now_ms())
        self.is_changed = False
        return DelayOffsets(dict(sorted(self._offsets.items())), self._data_version)
