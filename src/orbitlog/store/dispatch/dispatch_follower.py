"""Dispatch follower: the broker's view of queues and index while another process dispatches.

The other process publishes its progress; the log determines what it has put up to there. So the broker scans the same
range of the log, writes nothing, and advances each queue's end after checking that the expected unit is stored.
"""

from __future__ import annotations

from orbitlog.errors import FormatError
from orbitlog.formats.derived.derive import DeriveRules, QueueUnit, queue_units
from orbitlog.formats.derived.dispatch_marks import DispatchMark
from orbitlog.formats.records import flags
from orbitlog.formats.records.message import decode_message
from orbitlog.formats.records.message_scan import SegmentEnd
from orbitlog.kernels.arrays import np
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.store.derived.consumequeue import ConsumeQueue
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.dispatch.arrival import Arrival
from orbitlog.store.dispatch.dispatcher import Dispatcher
from orbitlog.store.log.commitlog import CommitLog, Span

_CHUNK_ROWS = 4096


class DispatchFollower:
    """Follows an external dispatcher in bounded steps."""

    def __init__(
        self, log: CommitLog, queues: QueueSet, index: IndexFiles, dispatcher: Dispatcher, rules: DeriveRules
    ) -> None:
        self._log = log
        self._queues = queues
        self._index = index
        self._dispatcher = dispatcher
        self._rules = rules
        self._scan = DispatchScan(rules, chunk_rows=_CHUNK_ROWS)
        self._by_code: dict[int, ConsumeQueue | None] = {}

    def follow(self, mark: DispatchMark, max_bytes: int) -> list[Arrival]:
        """Advance towards a mark by about `max_bytes` of the log; return the messages that can be read now."""
        arrivals: list[Arrival] = []
        dispatcher = self._dispatcher
        stop = min(mark.dispatched_to, dispatcher.dispatched_to + max_bytes)
        for span in list(self._log.spans(dispatcher.dispatched_to, stop)):
            view = self._log.segments.file(span.base).view()
            try:
                self._follow_span(view, span, arrivals)
            finally:
                view.release()
        if dispatcher.dispatched_to >= mark.dispatched_to:
            self._index.follow((mark.index_file, mark.index_header))
            dispatcher.last_store_timestamp_ms = mark.last_store_timestamp_ms
            dispatcher.last_physical_offset = mark.last_physical_offset
        return arrivals

    def _follow_span(self, view: memoryview, span: Span, arrivals: list[Arrival]) -> None:
        position = span.start
        while position < span.stop:
            for columns in self._scan.scan(view, position, span.stop, base_physical_offset=span.base):
                self._take(columns, arrivals)
                self._take_light(view, columns, span.base, arrivals)
                self._dispatcher.last_store_timestamp_ms = int(columns.store_timestamp_ms[-1])
                self._dispatcher.last_physical_offset = int(columns.physical_offset[-1])
            position, stopped_by = self._scan.ended
            if isinstance(stopped_by, SegmentEnd):
                position = len(view)
            elif stopped_by is not None:
                position = self._dispatcher.pass_damage(view, span, position, stopped_by)
        self._dispatcher.dispatched_to = span.base + position

    def _take(self, columns: DispatchColumns, arrivals: list[Arrival]) -> None:
        rows = np.flatnonzero(flags.enters_queue(columns.sys_flag))
        codes, queue_offsets = columns.queue_code[rows].tolist(), columns.queue_offset[rows].tolist()
        physical_offsets = columns.physical_offset[rows].tolist()
        first = {code: number for number, code in reversed(list(enumerate(codes)))}
        last = {code: number for number, code in enumerate(codes)}
        whole = {
            code
            for code, number in last.items()
            if self._has(code, queue_offsets[first[code]], physical_offsets[first[code]])
            and self._has(code, queue_offsets[number], physical_offsets[number])
        }
        rest = zip(columns.tags_code[rows].tolist(), columns.store_timestamp_ms[rows].tolist(), strict=True)
        for code, queue_offset, physical_offset, (tags_code, stored_ms) in zip(
            codes, queue_offsets, physical_offsets, rest, strict=True
        ):
            # If the last unit is missing its offset was invalid: then every other unit is checked.
            if code in whole or self._has(code, queue_offset, physical_offset):
                queue = self._by_code[code]
                assert queue is not None
                arrivals.append(Arrival(queue.topic, queue.queue_id, queue_offset, tags_code, stored_ms))

    def _has(self, code: int, queue_offset: int, physical_offset: int) -> bool:
        queue = self._queue(code)
        if queue is None or not queue.follow(queue_offset, physical_offset):
            return False
        self._queues.used(queue)
        return True

    def _queue(self, code: int) -> ConsumeQueue | None:
        if code not in self._by_code:
            topic, queue_id = self._scan.queues.queue(code)
            try:
                self._by_code[code] = self._queues.find_or_make(topic, queue_id)
            except FormatError:  # a topic that is not a valid directory name: no process has put it
                self._by_code[code] = None
        return self._by_code[code]

    def _take_light(self, view: memoryview, columns: DispatchColumns, base: int, arrivals: list[Arrival]) -> None:
        """Advance light queues, which few messages have."""
        for row in np.flatnonzero(columns.is_multi_dispatch) if self._rules.multi_dispatch else ():
            physical_offset, stored_ms = int(columns.physical_offset[row]), int(columns.store_timestamp_ms[row])
            for unit in self._light_units(view, physical_offset - base):
                queue = self._queues.find_or_make(unit.topic, unit.queue_id)
                if queue.follow(unit.queue_offset, physical_offset):
                    self._queues.used(queue)
                    code = unit.entry.tags_code
                    arrivals.append(Arrival(unit.topic, unit.queue_id, unit.queue_offset, code, stored_ms))

    def _light_units(self, view: memoryview, position: int) -> list[QueueUnit]:
        try:
            return queue_units(decode_message(view, position, check_crc=False), self._rules)[1:]
        except FormatError:
            return []
