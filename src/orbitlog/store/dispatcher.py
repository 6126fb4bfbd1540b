"""Derives queues and index from the log, in order, a bounded step at a time (Java's ReputMessageService).

`dispatched_to` is the physical offset before which every record has its unit and its keys. Damage in the log is
passed over and reported: the log after it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitlog.errors import BadField, FormatError, StoreError
from orbitlog.formats.derive import DeriveRules, QueueUnit, index_hashes, queue_units
from orbitlog.formats.message import Message
from orbitlog.formats.message_scan import BLANK, SegmentEnd, find_record, read_at
from orbitlog.formats.queue_entry import QueueEntry
from orbitlog.store.commitlog import CommitLog, Span
from orbitlog.store.consumequeue import ConsumeQueue
from orbitlog.store.index_files import IndexBoundary, IndexFiles
from orbitlog.store.queue_set import QueueSet

if TYPE_CHECKING:
    from orbitlog.store.bulk_dispatch import BulkDispatch

STEP_BYTES = 4 * 1024 * 1024
# Loading the kernels takes about as long as dispatching this much without them.
_BULK_BYTES_MIN = 32 * 1024 * 1024
# A step that takes a fraction of a second, so that whoever waits sees something move.
_BULK_STEP_BYTES = 256 * 1024 * 1024

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that can be read from its queue now."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """A part of the log that holds no readable record."""

    physical_offset: int
    size_bytes: int
    reason: str


class Dispatcher:
    """The one writer of queues and index."""

    def __init__(self, log: CommitLog, queues: QueueSet, index: IndexFiles, rules: DeriveRules) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._rules = rules
        self._index_from = IndexBoundary(0, 0)
        self.dispatched_to = log.min_physical_offset
        self.last_store_timestamp_ms = 0
        self.last_physical_offset = 0
        self.damage: list[DamagedLog] = []
        self._damaged_offsets: set[int] = set()
        self._bulk: BulkDispatch | None = None

    def start(self, dispatched_to: int, index_from: IndexBoundary) -> None:
        """Begin at a record; keys before the boundary are in the index already."""
        self.dispatched_to = dispatched_to
        self._index_from = index_from

    def dispatch_once(self, limit: int, max_bytes: int = STEP_BYTES) -> list[Arrival]:
        """Dispatch records that end at or before `limit`, about `max_bytes` of them."""
        arrivals: list[Arrival] = []
        stop = min(limit, self.dispatched_to + max_bytes)
        try:
            for span in list(self._log.spans(self.dispatched_to, stop)):
                self._dispatch_span(span, arrivals)
        except StoreError:
            if not arrivals:
                raise
            # Those can be read, and somebody waits for them; the next step meets the same error.
        return arrivals

    def catch_up(self, limit: int, progress: Progress | None = None) -> None:
        """Dispatch everything up to `limit`, with the kernels where that is much; tells bytes done and to do."""
        start = self.dispatched_to
        while self.dispatched_to < limit:
            if limit - self.dispatched_to >= _BULK_BYTES_MIN:
                self._dispatch_bulk(min(limit, self.dispatched_to + _BULK_STEP_BYTES))
            self.dispatch_once(limit)
            if progress is not None:
                progress(self.dispatched_to - start, limit - start)

    def _dispatch_bulk(self, limit: int) -> None:
        """Go as far as messages follow each other in this segment; what stops it is left to the next step."""
        from orbitlog.store.bulk_dispatch import BulkDispatch

        if self._bulk is None:
            self._bulk = BulkDispatch(self._queues, self._index, self._rules)
        span = next(self._log.spans(self.dispatched_to, limit))
        view = self._log.segments.file(span.base).view()
        try:
            progress = self._bulk.run(view, span.start, span.stop, span.base, self._index_from)
        except FormatError:
            # A field that no checksum covers is damaged: that is for the step that can report it.
            self._index_from = self._index.boundary()
            return
        if progress.position > span.start:
            self.dispatched_to = span.base + progress.position
            self.last_physical_offset = progress.last_physical_offset
            self.last_store_timestamp_ms = progress.last_store_timestamp_ms

    def _dispatch_span(self, span: Span, arrivals: list[Arrival]) -> None:
        view = self._log.segments.file(span.base).view()
        try:
            position = span.start
            while position < span.stop:
                found = read_at(view, position, base_physical_offset=span.base, check_crc=False)
                if isinstance(found, Message):
                    size_bytes = BLANK.struct.unpack_from(view, position)[0]
                    try:
                        self._dispatch(found, arrivals)
                    except FormatError as error:
                        # A field that no checksum covers cannot be what was written.
                        self.note_damage(span.base + position, size_bytes, str(error))
                    position += size_bytes
                elif isinstance(found, SegmentEnd):
                    position = len(view)
                else:
                    position = self._pass_damage(view, span, position, found)
                self.dispatched_to = span.base + position
        finally:
            view.release()

    def note_damage(self, physical_offset: int, size_bytes: int, reason: str) -> None:
        """Remember a part of the log that cannot be read; once, however often it is met."""
        if physical_offset not in self._damaged_offsets:
            self._damaged_offsets.add(physical_offset)
            self.damage.append(DamagedLog(physical_offset, size_bytes, reason))

    def _pass_damage(self, view: memoryview, span: Span, position: int, found: object) -> int:
        following = find_record(view, position + 1, base_physical_offset=span.base)
        end = span.stop if following is None else following
        reason = str(getattr(found, "error", "zeros where records should be"))
        self.note_damage(span.base + position, end - position, reason)
        return end

    def _dispatch(self, message: Message, arrivals: list[Arrival]) -> None:
        properties = message.properties
        for unit in queue_units(message, self._rules, properties):
            queue = self._queues.find_or_make(unit.topic, unit.queue_id)
            if queue.put(unit.queue_offset, unit.entry) or self._mends(queue, unit):
                self._queues.used(queue, written=True)
                arrivals.append(
                    Arrival(
                        unit.topic, unit.queue_id, unit.queue_offset, unit.entry.tags_code, message.store_timestamp_ms
                    )
                )
        self._put_keys(message, properties)
        self.last_store_timestamp_ms = message.store_timestamp_ms
        self.last_physical_offset = message.physical_offset

    def _mends(self, queue: ConsumeQueue, unit: QueueUnit) -> bool:
        """Look at the unit that is there already, while recovering: where it is wrong, this one takes its place.

        One that only fills room is wrong, too: it was put there for want of this message.
        """
        there = queue.entry(unit.queue_offset)
        if there == unit.entry or unit.queue_offset < queue.min_offset:
            return False
        if there is not None and self._has_message(there, unit):
            raise BadField(f"{unit.queue_offset} is that of another message", field="queue offset")
        queue.replace(unit.queue_offset, unit.entry)
        return True

    def _has_message(self, entry: QueueEntry, unit: QueueUnit) -> bool:
        """Tell whether an entry points to a message that belongs where the unit is to go."""
        try:
            message = self._log.read_message(entry.physical_offset, entry.size_bytes)
        except FormatError:
            return False
        return message is not None and unit.queue_offset == message.queue_offset and unit.topic == message.topic

    def _put_keys(self, message: Message, properties: dict[str, str]) -> None:
        physical_offset, boundary = message.physical_offset, self._index_from
        if physical_offset < boundary.physical_offset:
            return
        skip = boundary.skip_keys if physical_offset == boundary.physical_offset else 0
        key_hashes = index_hashes(message, self._rules.compat, properties)[skip:]
        if not key_hashes and skip:
            return
        try:
            self._index.put(key_hashes, physical_offset, message.store_timestamp_ms)
        except StoreError:
            self._index_from = self._index.boundary()  # some of the keys may be in it: the next try goes on there
            raise
