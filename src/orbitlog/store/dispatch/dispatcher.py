"""Dispatcher: derives queue units and index entries from the log, in log order (Java's ReputMessageService).

Every record before the physical offset `dispatched_to` has its unit and its keys. One step takes the first of three
ways that applies: kernels for many messages (`kernel_dispatch`), a fast path over copied bytes for eligible records
(`fast_derive`), the full decoder for everything else. Damaged ranges of the log are skipped and reported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitlog.errors import BadField, FormatError, StoreError
from orbitlog.formats.derived.derive import DeriveRules, QueueUnit, index_hashes, queue_units
from orbitlog.formats.derived.fast_derive import FastDerive
from orbitlog.formats.derived.queue_entry import QUEUE_ENTRY, QueueEntry
from orbitlog.formats.records import flags
from orbitlog.formats.records.flags import OUT_OF_QUEUE_BIT
from orbitlog.formats.records.message import MAGIC_V1, RECORD_PREFIX, Message
from orbitlog.formats.records.message_scan import BLANK, SegmentEnd, find_record, read_at
from orbitlog.formats.records.properties import PROPERTIES_BYTES_MAX
from orbitlog.kernels import COMPILED
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.index_files import IndexBoundary, IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.dispatch.arrival import Arrival, DamagedLog, Progress
from orbitlog.store.log.commitlog import CommitLog, Span
from orbitlog.storefiles.disk import MappedFile

if TYPE_CHECKING:
    from orbitlog.store.dispatch.kernel_dispatch import BulkDispatch, KernelProgress, LiveDispatch
    from orbitlog.store.recovery.recovery_plan import LeftOutUnits

STEP_BYTES = 4 * 1024 * 1024
# Loading the kernels takes about as long as dispatching this much without them.
_BULK_BYTES_MIN = 4 * 1024 * 1024
# A step of a fraction of a second, so that a progress display moves.
_BULK_STEP_BYTES = 256 * 1024 * 1024
# About as many messages as plain Python dispatches in the time of the kernel calls themselves.
_LIVE_BYTES_MIN = 4 * 1024

# The fields of an IPv4 V1 record from which units and keys are derived.
_ELIGIBLE = RECORD_PREFIX.partial(
    *("total_size", "magic", "queue_id", "queue_offset", "physical_offset"),
    *("sys_flag", "store_timestamp_ms", "body_length"),
)
assert _ELIGIBLE.size == RECORD_PREFIX.size_bytes
_IPV6_BITS = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6
_PACK_UNIT = QUEUE_ENTRY.struct.pack
_TOPICS_MAX = 65_536
_new_tuple = tuple.__new__  # creates a named tuple in half the time of calling its class


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
        self._quick = FastDerive(rules)
        self._topics: dict[bytes, str] = {}
        self._live: LiveDispatch | None = None
        self._left_out: LeftOutUnits | None = None

    def start(self, dispatched_to: int, index_from: IndexBoundary) -> None:
        """Start at a record; keys before the boundary are in the index already."""
        self.dispatched_to = dispatched_to
        self._index_from = index_from

    def leave_out(self, left_out: LeftOutUnits | None) -> None:
        """Put no units for some records while a store is recovered; None puts all."""
        self._left_out = left_out
        if self._bulk is not None:
            self._bulk.left_out = left_out

    @property
    def index_from(self) -> IndexBoundary:
        """The first key that is not in the index yet."""
        return self._index_from

    def dispatch_once(self, limit: int, max_bytes: int = STEP_BYTES, *, each: bool = True) -> list[Arrival]:
        """Dispatch records that end at or before `limit`, about `max_bytes` of them.

        Return `each` message that can be read now, or at least the last of each queue, which is cheaper.
        """
        arrivals: list[Arrival] = []
        stop = min(limit, self.dispatched_to + max_bytes)
        try:
            for span in list(self._log.spans(self.dispatched_to, stop)):
                self._dispatch_span(span, arrivals, each)
        except StoreError:
            if not arrivals:
                raise
            # These can be read and long polls wait for them; the next step meets the same error.
        finally:
            self._index.settle()
        return arrivals

    def catch_up(self, limit: int, progress: Progress | None = None) -> None:
        """Dispatch everything up to `limit`, with kernels if that is much; `progress` gets bytes done and to do."""
        start = self.dispatched_to
        while self.dispatched_to < limit:
            if COMPILED and limit - self.dispatched_to >= _BULK_BYTES_MIN:
                self._dispatch_bulk(min(limit, self.dispatched_to + _BULK_STEP_BYTES))
            self.dispatch_once(limit)
            if progress is not None:
                progress(self.dispatched_to - start, limit - start)
        if self._bulk is not None and self._live is None:
            self.load_kernels()  # the bulk dispatch has loaded them already

    def _dispatch_bulk(self, limit: int) -> None:
        """Dispatch consecutive messages of one segment; whatever stops it is left to the next step."""
        from orbitlog.store.dispatch.kernel_dispatch import BulkDispatch

        if self._bulk is None:
            self._bulk = BulkDispatch(self._queues, self._index, self._rules)
            self._bulk.left_out = self._left_out
        span = next(self._log.spans(self.dispatched_to, limit))
        view = self._log.segments.file(span.base).view()
        try:
            progress = self._bulk.run(view, span, self._index_from)
        except FormatError:
            # A field that no checksum covers is damaged: the next step reports it.
            self._index_from = self._index.boundary()
            return
        finally:
            view.release()
        self._advance(span, progress)

    def _advance(self, span: Span, progress: KernelProgress) -> None:
        if progress.position > span.start:
            self.dispatched_to = span.base + progress.position
            self.last_physical_offset = progress.last_physical_offset
            self.last_store_timestamp_ms = progress.last_store_timestamp_ms

    def _dispatch_span(self, span: Span, arrivals: list[Arrival], each: bool) -> None:
        file, end = self._log.segments.file(span.base), span.base + span.stop
        if self._live is not None and span.stop - span.start >= _LIVE_BYTES_MIN:
            self._dispatch_live(self._live, file, span, arrivals, each)
        while self.dispatched_to < end:
            start = self.dispatched_to - span.base
            self._dispatch_part(file, Span(span.base, start, min(start + STEP_BYTES, span.stop)), arrivals)

    def _dispatch_part(self, file: MappedFile, span: Span, arrivals: list[Arrival]) -> None:
        """Dispatch a range that is small enough to be copied."""
        records = file.read(span.start, span.stop - span.start)
        while self.dispatched_to < span.base + span.stop:
            if self._dispatch_eligible(records, span, arrivals):
                continue
            view = file.view()
            try:
                self.dispatched_to = span.base + self._dispatch_any(view, span, arrivals)
            finally:
                view.release()

    @property
    def has_kernels(self) -> bool:
        return self._live is not None

    def load_kernels(self) -> None:
        """Use the kernels for steps of many messages. Takes a while; may be called in any thread.

        `_live` is assigned last, when everything is loaded: the dispatching thread sees all of it or None.
        """
        from orbitlog.store.dispatch.kernel_dispatch import LiveDispatch

        live = LiveDispatch(self._queues, self._index, self._rules)
        live.load()
        self._live = live

    def _dispatch_live(
        self, live: LiveDispatch, file: MappedFile, span: Span, arrivals: list[Arrival], each: bool
    ) -> None:
        view = file.view()
        try:
            progress = live.run(view, span, self._index_from, arrivals, each=each)
        except StoreError:
            self._index_from = self._index.boundary()
            raise
        finally:
            view.release()
        self._advance(span, progress)

    def _dispatch_eligible(self, records: bytes, span: Span, arrivals: list[Arrival]) -> bool:
        """Fast path: dispatch records of the copied span while they are eligible; return whether one was dispatched."""
        first = position = self.dispatched_to - span.base - span.start
        physical_offset, end = self.dispatched_to, len(records)
        topics, derive, find_queue = self._topics, self._quick.derive, self._queues.find_key
        while position + _ELIGIBLE.size <= end:
            size_bytes, magic, queue_id, queue_offset, stated_offset, sys_flag, store_ms, body_bytes = (
                _ELIGIBLE.unpack_from(records, position)
            )
            record_end = position + size_bytes
            topic_start = position + RECORD_PREFIX.size_bytes + body_bytes + 1
            if (
                magic != MAGIC_V1
                or stated_offset != physical_offset
                or sys_flag & _IPV6_BITS
                or body_bytes < 0
                or not topic_start + 2 < record_end <= end
            ):
                break
            topic_end = topic_start + records[topic_start - 1]
            properties_start = topic_end + 2
            properties_bytes = int.from_bytes(records[topic_end:properties_start], "big")
            if properties_start + properties_bytes != record_end or properties_bytes > PROPERTIES_BYTES_MAX:
                break
            topic = topics.get(records[topic_start:topic_end])
            if topic is None:
                break
            derived = derive(topic, sys_flag, records[properties_start:record_end])
            if derived is None:
                break
            tags_code, key_hashes = derived
            if not sys_flag & OUT_OF_QUEUE_BIT:  # `enters_queue`, without a call for every message
                queue = find_queue((topic, queue_id))
                if queue is None or not queue.put_next(
                    queue_offset, _PACK_UNIT(physical_offset, size_bytes, tags_code)
                ):
                    break
                arrivals.append(_new_tuple(Arrival, (topic, queue_id, queue_offset, tags_code, store_ms)))
            self._put_keys(key_hashes, physical_offset, store_ms)
            self.last_store_timestamp_ms, self.last_physical_offset = store_ms, physical_offset
            position, physical_offset = record_end, physical_offset + size_bytes
            self.dispatched_to = physical_offset
        return position > first

    def _dispatch_any(self, view: memoryview, span: Span, arrivals: list[Arrival]) -> int:
        """Slow path: dispatch the record, BLANK or damage at `dispatched_to`; return the position after it."""
        position = self.dispatched_to - span.base
        found = read_at(view, position, base_physical_offset=span.base, check_crc=False)
        if isinstance(found, SegmentEnd):
            return len(view)
        if not isinstance(found, Message):
            return self.pass_damage(view, span, position, found)
        size_bytes = int(BLANK.struct.unpack_from(view, position)[0])
        try:
            self._dispatch(found, arrivals)
        except FormatError as error:
            # A field that no checksum covers has an invalid value.
            self.note_damage(span.base + position, size_bytes, str(error))
        return position + size_bytes

    def note_damage(self, physical_offset: int, size_bytes: int, reason: str) -> None:
        """Remember an unreadable range of the log; once, however often it is met."""
        if physical_offset not in self._damaged_offsets:
            self._damaged_offsets.add(physical_offset)
            self.damage.append(DamagedLog(physical_offset, size_bytes, reason))

    def pass_damage(self, view: memoryview, span: Span, position: int, found: object) -> int:
        """Remember what was found instead of a record; return the position of the next record, or the span's end."""
        following = find_record(view, position + 1, base_physical_offset=span.base)
        end = span.stop if following is None else following
        reason = str(getattr(found, "error", "zeros where records should be"))
        self.note_damage(span.base + position, end - position, reason)
        return end

    def _dispatch(self, message: Message, arrivals: list[Arrival]) -> None:
        properties = message.properties
        for unit in queue_units(message, self._rules, properties):
            if self._left_out is not None and not self._left_out.takes(
                (unit.topic, unit.queue_id), message.physical_offset, unit.queue_offset
            ):
                continue
            queue = self._queues.find_or_make(unit.topic, unit.queue_id)
            is_new = queue.put(unit.queue_offset, unit.entry) or self._replaces_invalid(queue, unit)
            self._queues.used(queue)
            if is_new:
                arrivals.append(
                    Arrival(
                        unit.topic, unit.queue_id, unit.queue_offset, unit.entry.tags_code, message.store_timestamp_ms
                    )
                )
        self._put_keys(
            index_hashes(message, self._rules.compat, properties), message.physical_offset, message.store_timestamp_ms
        )
        self._learn_topic(message.topic)
        self.last_store_timestamp_ms = message.store_timestamp_ms
        self.last_physical_offset = message.physical_offset

    def _replaces_invalid(self, queue: ConsumeQueue, unit: QueueUnit) -> bool:
        """Replace the stored unit of the same queue offset if it is invalid; return whether it was.

        Happens while recovering. A filler (pre-blank unit) counts as invalid: it was put in place of this message.
        Raise `BadField` if the stored unit points to another valid message.
        """
        stored = queue.entry(unit.queue_offset)
        if stored == unit.entry or unit.queue_offset < queue.min_offset:
            return False
        is_own = stored is not None and stored.physical_offset == unit.entry.physical_offset
        if stored is not None and not is_own and self._has_message(stored, unit):
            raise BadField(f"{unit.queue_offset} is that of another message", field="queue offset")
        queue.replace(unit.queue_offset, unit.entry)
        return True

    def _has_message(self, entry: QueueEntry, unit: QueueUnit) -> bool:
        """Return whether an entry points to a message with the topic and queue offset of the unit."""
        try:
            message = self._log.read_message(entry.physical_offset, entry.size_bytes)
        except FormatError:
            return False
        return message is not None and unit.queue_offset == message.queue_offset and unit.topic == message.topic

    def _put_keys(self, key_hashes: list[int], physical_offset: int, store_timestamp_ms: int) -> None:
        boundary = self._index_from
        if physical_offset <= boundary.physical_offset:
            if physical_offset < boundary.physical_offset:
                return
            key_hashes = key_hashes[boundary.skip_keys :]
            if not key_hashes and boundary.skip_keys:
                return
        try:
            self._index.put(key_hashes, physical_offset, store_timestamp_ms)
        except StoreError:
            self._index_from = self._index.boundary()  # some keys may be in it: the next try continues there
            raise

    def _learn_topic(self, topic: str) -> None:
        """Cache a topic by its encoded name, which was checked."""
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        self._topics[topic.encode()] = topic
