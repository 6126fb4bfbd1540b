"""Pending messages of a stopped store: timer messages that wait, and POP messages that are in flight.

Check points and acknowledgements of POP wait in the timer topic until shortly before they are due, then they are in
`rmq_sys_REVIVE_LOG_<cluster>`. A check point counts until the offset of the revive group is past it. Only the newest
messages of each queue are read, so the numbers of a busy store can be too low; `is_complete` is False then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from orbitlog.doctor.surveys.stored_tables import read_offsets, read_table
from orbitlog.doctor.surveys.timer_survey import timer_checkpoint
from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.records import properties as props
from orbitlog.formats.records import timer_message
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import read_at
from orbitlog.formats.records.pop_checkpoint import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    CheckPointKey,
    PopCheckPoint,
    decode_ack,
    decode_check_point,
)
from orbitlog.formats.tables.offset_tables import TopicGroup
from orbitlog.formats.tables.pop_progress import POP_PROGRESS
from orbitlog.formats.tables.timer_progress import TIMER_PROGRESS
from orbitlog.jobs.split_derivation import UNIT
from orbitlog.kernels.arrays import np
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.offset_files import offsets_file
from orbitlog.storefiles.store_files import StoreFiles

_MESSAGES_MAX = 20_000
Offsets = Mapping[TopicGroup, Mapping[int, int]]


@dataclass(slots=True)
class PendingMessages:
    """Timer messages that wait, POP messages in flight by group, and whether all of them were counted."""

    timers: int = 0
    popped: Counter[str] = field(default_factory=Counter)
    is_complete: bool = True


@dataclass(slots=True)
class _Flights:
    """Check points and acknowledgements, in any order."""

    points: dict[CheckPointKey, PopCheckPoint] = field(default_factory=dict)
    done: dict[CheckPointKey, set[int]] = field(default_factory=dict)

    def take(self, message: Message) -> None:
        """Take a message of the revive topic; one that cannot be decoded is left out."""
        tag = message.properties.get(props.TAGS)
        try:
            if tag == CHECK_POINT_TAG:
                point = decode_check_point(message.body)
                self.points[point.key] = point
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = decode_ack(message.body)
                self.done.setdefault(ack.key, set()).update(ack.queue_offsets)
        except FormatError:
            return

    def in_flight(self, committed: Offsets) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, queue id and queue offset; not those that the committed offset delivers again."""
        for key, point in self.points.items():
            next_offset = committed.get(TopicGroup(point.topic, point.group), {}).get(point.queue_id)
            for at, queue_offset in enumerate(point.queue_offsets):
                is_done = point.acknowledged_bits >> at & 1 or queue_offset in self.done.get(key, ())
                if not is_done and (next_offset is None or queue_offset < next_offset):
                    yield point.group, point.topic, point.queue_id, queue_offset


def find_pending(store: StoreFiles) -> PendingMessages:
    """Count timer messages and POP messages in flight."""
    found, flights = PendingMessages(), _Flights()
    offsets = read_offsets(store.root, offsets_file(store.root))
    committed: Offsets = offsets.offsets if offsets is not None else {}
    _read_timers(store, found, flights)
    for topic, queue_id in store.queues:
        if topic.startswith(names.REVIVE_TOPIC_PREFIX):
            settled = committed.get(TopicGroup(topic, names.REVIVE_GROUP), {}).get(queue_id, -1)
            for _, message in _newest(store, (topic, queue_id), settled + 1, found):
                flights.take(message)
    in_flight = set(flights.in_flight(committed))
    own = read_table(store.root, POP_PROGRESS)
    for queue in own.queues if own is not None else ():
        in_flight.update((queue.group, queue.topic, queue.queue_id, each) for each in queue.queue_offsets)
    found.popped = Counter(group for group, *_ in in_flight)
    return found


def _read_timers(store: StoreFiles, found: PendingMessages, flights: _Flights) -> None:
    checkpoint, own = timer_checkpoint(store), read_table(store.root, TIMER_PROGRESS)
    done_to_ms = max(checkpoint.last_read_time_ms if checkpoint else 0, own.done_to_ms if own else 0)
    seen_to = max(checkpoint.last_queue_offset if checkpoint else 0, own.queue_offset if own else 0)
    for queue_offset, message in _newest(store, (names.TIMER_TOPIC, 0), 0, found):
        if queue_offset < seen_to and not _is_due_after(message, done_to_ms):
            continue
        if message.properties.get(props.REAL_TOPIC, "").startswith(names.REVIVE_TOPIC_PREFIX):
            flights.take(message)
        elif timer_message.DELETE_KEY not in message.properties:
            found.timers += 1


def _is_due_after(message: Message, done_to_ms: int) -> bool:
    try:
        due_ms = timer_message.stored_due_ms(message.properties, message.store_timestamp_ms)
    except (FormatError, KeyError):
        return False
    return timer_message.wake_ms(due_ms, message.store_timestamp_ms) > done_to_ms + timer_message.PRECISION_MS


def _newest(
    store: StoreFiles, queue: tuple[str, int], first: int, found: PendingMessages
) -> Iterator[tuple[int, Message]]:
    """Yield the newest messages of a queue from an offset on, in their order."""
    units = list(_units(store, queue, first))
    if len(units) > _MESSAGES_MAX:
        found.is_complete = False
    for queue_offset, physical_offset in units[-_MESSAGES_MAX:]:
        segment = store.segment_at(physical_offset)
        if segment is None:
            continue
        with mapped_view(segment.path) as view:
            message = read_at(view, physical_offset - segment.base, base_physical_offset=segment.base)
        if isinstance(message, Message) and message.topic == queue[0]:
            yield queue_offset, message


def _units(store: StoreFiles, queue: tuple[str, int], first: int) -> Iterator[tuple[int, int]]:
    """Yield the queue offset and the physical offset of each unit from a queue offset on."""
    for file in store.queues.get(queue, ()):
        base = file.base // ENTRY_BYTES
        count = min(file.size_bytes, written_until(file.path)) // ENTRY_BYTES
        with mapped_view(file.path) as view:
            units = np.frombuffer(view, UNIT, count)
            offsets, sizes = units["physical_offset"].astype(np.int64), units["size_bytes"].astype(np.int64)
            del units
        for row in np.flatnonzero(sizes > 0):
            if base + int(row) >= first:
                yield base + int(row), int(offsets[row])
