"""Revive reader: redelivers unacknowledged messages that a Java broker, or an earlier run of this one, delivered.

The timer delivers checkpoints and acknowledgements to `rmq_sys_REVIVE_LOG_<cluster>`, a checkpoint one second before
its messages become visible. A checkpoint is settled when everything due until two seconds after that has been read:
messages not acknowledged by then are appended to the group's retry topic. The progress is the committed offset of
CID_RMQ_SYS_REVIVE_GROUP, the last settled checkpoint, as in Java, so either broker continues where the other stopped.
Mirrors `PopReviveService`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from orbitlog.broker.pop.popped_queues import Expired, Flight, PopKey
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.pop_checkpoint import (
    ACK_INTERVAL_MS,
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    CheckPointKey,
    PopCheckPoint,
    decode_ack,
    decode_check_point,
)
from orbitlog.formats.tables.offset_tables import TopicGroup
from orbitlog.store.derived.consumequeue import ConsumeQueue

log = logging.getLogger(__name__)

LOOK_MS = 1_000
READ_MAX = 512
REVIVE_MAX = 256
SLACK_MS = ACK_INTERVAL_MS + 1_000


@dataclass(slots=True)
class _Pending:
    """A checkpoint that is not settled; `done` are messages acknowledged, or revived before the store refused one."""

    point: PopCheckPoint
    revive_offset: int
    done: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _ReviveQueue:
    topic: str
    queue_id: int
    next_to_read: int
    # In order of revive offsets.
    pending: dict[CheckPointKey, _Pending] = field(default_factory=dict)


class ReviveReader:
    """Reads every revive topic of a store. A pure table over the store; callers pass the time."""

    def __init__(
        self,
        state: BrokerState,
        revive: Callable[[Expired, bool], bool],
        settled_to_ms: Callable[[int], int],
    ) -> None:
        self._state = state
        self._revive = revive
        self._timer_settled_to_ms = settled_to_ms
        self._queues: dict[tuple[str, int], _ReviveQueue] = {}
        self._next_look_ms = 0
        # Everything due until then is in the revive queues.
        self.known_to_ms = 0
        self._stored: tuple[int, int] | None = None
        self._delivered: tuple[int, int] | None = None
        self._revived = 0
        self._started_ms = state.now_ms()
        # Offsets when this broker started: messages past them are delivered from the queues themselves.
        self._found = {key: state.offsets.queues(*key) for key in state.offsets.keys} if self._has_java_files else {}
        # Messages in flight since before the start that this run handed over: `_found` does not hold for them.
        self._handed_over: set[tuple[PopKey, int, int]] = set()

    @property
    def _has_java_files(self) -> bool:
        """Return whether the store may contain checkpoints of an earlier broker; most stores do not."""
        topics = [names.TIMER_TOPIC, *(name for name in self._state.topics.table if _is_revive_topic(name))]
        return any(self._state.store.queue(topic, 0) is not None for topic in topics)

    def tick(self, now_ms: int) -> None:
        """Read records that arrived and settle checkpoints that are due; return at once between two reads."""
        if now_ms < self._next_look_ms <= now_ms + LOOK_MS:
            return
        self._revived = 0
        self._advance(now_ms)
        is_behind = [self._step(queue) for queue in self._find_queues()]
        self._next_look_ms = now_ms if any(is_behind) else now_ms + LOOK_MS

    def acknowledge(self, key: CheckPointKey, queue_offset: int) -> None:
        """Record an acknowledgement that was just appended: the reader may not reach it in time."""
        for queue in self._queues.values():
            pending = queue.pending.get(key)
            if pending is not None:
                pending.done.add(queue_offset)

    def note_hand_over(self, key: PopKey, pop_timestamp_ms: int, queue_offsets: Iterable[int]) -> None:
        """Record that checkpoints of these messages were appended, and that the group's offset passes them."""
        if pop_timestamp_ms < self._started_ms:
            self._handed_over.update((key, pop_timestamp_ms, queue_offset) for queue_offset in queue_offsets)

    # Progress of the timer

    def _advance(self, now_ms: int) -> None:
        """Advance `known_to_ms`: a record counts after dispatch, delivery by the timer, and another dispatch."""
        store = self._state.store
        if self._delivered is None:
            if self._stored is None:
                self._stored = now_ms, store.written_to
            stored_ms, stored_to = self._stored
            if store.dispatched_to < stored_to:
                return
            self._stored = None
            self._delivered = min(stored_ms, self._timer_settled_to_ms(now_ms)), store.written_to
        settled_ms, delivered_to = self._delivered
        if store.dispatched_to >= delivered_to:
            self.known_to_ms = max(self.known_to_ms, settled_ms)
            self._delivered = None

    def _find_queues(self) -> list[_ReviveQueue]:
        """Return the queues of revive topics, also of an earlier cluster name of this broker."""
        for topic, config in self._state.topics.table.items():
            if not _is_revive_topic(topic):
                continue
            for queue_id in range(config.read_queue_count):
                key = topic, queue_id
                if key not in self._queues and self._state.store.queue(*key) is not None:
                    settled = self._state.offsets.find(topic, names.REVIVE_GROUP, queue_id)
                    self._queues[key] = _ReviveQueue(*key, 0 if settled is None else settled + 1)
        return list(self._queues.values())

    # Reading

    def _step(self, queue: _ReviveQueue) -> bool:
        """Read and settle some; return whether more can be done now."""
        stored = self._state.store.queue(queue.topic, queue.queue_id)
        if stored is None:
            return False
        queue.next_to_read = max(queue.next_to_read, stored.min_offset)
        if self.known_to_ms and queue.next_to_read > stored.max_offset:
            self._correct(queue, stored)
        end = min(stored.max_offset, queue.next_to_read + READ_MAX)
        while queue.next_to_read < end:
            self._read(queue, stored, queue.next_to_read)
            queue.next_to_read += 1
        return queue.next_to_read < stored.max_offset or self._settle(queue)

    def _correct(self, queue: _ReviveQueue, stored: ConsumeQueue) -> None:
        """Continue at the end of a queue that is shorter than the committed offset, as after a torn log."""
        log.warning(
            "revive offset %d of %s queue %d is past its end %d: continuing there",
            *(queue.next_to_read - 1, queue.topic, queue.queue_id, stored.max_offset),
        )
        queue.next_to_read = stored.max_offset
        self._commit(queue, stored.max_offset - 1)

    def _read(self, queue: _ReviveQueue, stored: ConsumeQueue, queue_offset: int) -> None:
        entry = stored.entry(queue_offset)
        message = None if entry is None else self._state.store.read_at(entry.physical_offset)
        if message is None:
            log.error("could not read offset %d of %s queue %d", queue_offset, queue.topic, queue.queue_id)
            return
        try:
            self._take(queue, queue_offset, message)
        except FormatError as error:
            log.error(
                "invalid POP record at offset %d of %s queue %d: %s", queue_offset, queue.topic, queue.queue_id, error
            )

    def _take(self, queue: _ReviveQueue, queue_offset: int, message: Message) -> None:
        tag = message.properties.get(props.TAGS)
        if tag == CHECK_POINT_TAG:
            point = decode_check_point(message.body)
            earlier = queue.pending.pop(point.key, None)  # delivered twice by the timer: the later offset counts
            done = set() if earlier is None else earlier.done
            done |= {
                acknowledged
                for bit, acknowledged in enumerate(point.queue_offsets)
                if point.acknowledged_bits >> bit & 1
            }
            queue.pending[point.key] = _Pending(point, queue_offset, done)
        elif tag in (ACK_TAG, BATCH_ACK_TAG):
            ack = decode_ack(message.body)
            pending = queue.pending.get(ack.key)
            if pending is not None:
                pending.done.update(ack.queue_offsets)

    # Settling

    def _settle(self, queue: _ReviveQueue) -> bool:
        """Settle checkpoints in order; return whether more are due."""
        for key, pending in list(queue.pending.items()):
            if pending.point.visible_ms + SLACK_MS >= self.known_to_ms:
                return False
            if self._revived >= REVIVE_MAX:
                return True
            if not self._settle_one(pending):
                return False
            del queue.pending[key]
            self._commit(queue, pending.revive_offset)
        return False

    def _settle_one(self, pending: _Pending) -> bool:
        """Revive unacknowledged messages; return False if the store refuses one now."""
        point = pending.point
        key = PopKey(point.topic, point.group, point.queue_id)
        flight = Flight(point.pop_timestamp_ms, point.visible_ms, point.start_queue_offset)
        for queue_offset in point.queue_offsets:
            if queue_offset in pending.done or self._queue_redelivers(key, queue_offset, point.pop_timestamp_ms):
                continue
            if not self._revive(Expired(key, queue_offset, flight), not point.is_suspended):
                return False
            pending.done.add(queue_offset)
            self._revived += 1
        return True

    def _queue_redelivers(self, key: PopKey, queue_offset: int, pop_timestamp_ms: int) -> bool:
        """Return whether the queue itself delivers the message, because the group's offset is or was at most its own.

        That is so after an offset reset, and after a crash between a checkpoint and the offset saved with it.
        """
        committed = [self._state.offsets.find(*key)]
        if pop_timestamp_ms < self._started_ms and (key, pop_timestamp_ms, queue_offset) not in self._handed_over:
            committed.append(self._found.get(TopicGroup(key.topic, key.group), {}).get(key.queue_id))
        return any(offset is not None and offset <= queue_offset for offset in committed)

    def _commit(self, queue: _ReviveQueue, revive_offset: int) -> None:
        self._state.offsets.commit(queue.topic, names.REVIVE_GROUP, queue.queue_id, revive_offset)


def _is_revive_topic(topic: str) -> bool:
    return topic.startswith(names.REVIVE_TOPIC_PREFIX)
