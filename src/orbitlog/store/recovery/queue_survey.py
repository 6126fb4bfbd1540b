"""Queue survey: follows the queue offsets of all records through the log and compares their units with the queue files.

Read-only. Recovery runs it on a store without a valid state file: it shows which queues are complete as they are, and
where a topic was deleted and created again. Large logs are scanned with the kernels, small ones with plain Python: that
is done before the kernels are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from orbitlog.errors import FormatError
from orbitlog.formats.derived.derive import DeriveRules, QueueUnit, queue_units
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, encode_entry
from orbitlog.formats.names import check_stored_topic
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.message_scan import BLANK, SegmentEnd, find_record, read_at
from orbitlog.kernels import COMPILED
from orbitlog.store.derived.queue_set import QueueKey, QueueSet
from orbitlog.store.log.commitlog import CommitLog, Span
from orbitlog.store.recovery.queue_lives import UnitRun

if TYPE_CHECKING:
    from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan

# Loading the kernels takes about as long as surveying this much without them.
KERNEL_BYTES_MIN = 4 * 1024 * 1024

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class QueueSurvey:
    """Runs of every queue in the order of the log, and the last record.

    `is_damaged` if a part of the log or a field of a record could not be read: the dispatcher reports such a part when
    it meets it.
    """

    runs: dict[QueueKey, list[UnitRun]] = field(default_factory=dict)
    last_physical_offset: int = 0
    last_store_timestamp_ms: int = 0
    is_damaged: bool = False


def survey_queues(
    log: CommitLog, limit: int, queues: QueueSet, rules: DeriveRules, progress: Progress | None = None
) -> QueueSurvey:
    """Survey the log up to `limit`, the physical offset of its end."""
    survey = _Survey(queues, rules)
    start = log.min_physical_offset
    if COMPILED and limit - start >= KERNEL_BYTES_MIN:
        survey.load_kernels()
    for span in log.spans(start, limit):
        view = log.segments.file(span.base).view()
        try:
            survey.take_span(view, span)
        finally:
            view.release()
        if progress is not None:
            progress(span.base + span.stop - start, limit - start)
    return survey.result


class _Survey:
    """One survey under way."""

    def __init__(self, queues: QueueSet, rules: DeriveRules) -> None:
        self.result = QueueSurvey()
        self._queues = queues
        self._rules = rules
        self._scan: DispatchScan | None = None
        self._keys: dict[int, QueueKey | None] = {}
        self._invalid_topics: set[str] = set()

    def load_kernels(self) -> None:
        from orbitlog.kernels.dispatch import DispatchScan

        self._scan = DispatchScan(self._rules)

    def take_span(self, view: memoryview, span: Span) -> None:
        position = span.start
        while position < span.stop:
            position = self._take_columns(view, position, span)
            if position < span.stop:
                position = self._take_record(view, position, span)

    def _take_columns(self, view: memoryview, position: int, span: Span) -> int:
        """Take the messages that follow each other, with the kernels; return the position of the first other thing."""
        scan = self._scan
        if scan is None:
            return position
        for columns in scan.scan(view, position, span.stop, base_physical_offset=span.base):
            self._take_chunk(scan, columns)
            if self._rules.multi_dispatch:
                for unit in self._light_units(view, columns, span.base):
                    self._take_unit(unit)
            self.result.last_physical_offset = int(columns.physical_offset[-1])
            self.result.last_store_timestamp_ms = int(columns.store_timestamp_ms[-1])
        return scan.ended[0]

    def _take_record(self, view: memoryview, position: int, span: Span) -> int:
        """Take what is stored at a position, as the dispatcher does; return the position after it."""
        found = read_at(view, position, base_physical_offset=span.base, check_crc=False)
        if isinstance(found, SegmentEnd):
            return len(view)
        if not isinstance(found, Message):
            self.result.is_damaged = True
            following = find_record(view, position + 1, base_physical_offset=span.base)
            return span.stop if following is None else following
        try:
            for unit in queue_units(found, self._rules):
                self._take_unit(unit)
        except FormatError:
            self.result.is_damaged = True
        else:
            self.result.last_physical_offset = found.physical_offset
            self.result.last_store_timestamp_ms = found.store_timestamp_ms
        return position + int(BLANK.struct.unpack_from(view, position)[0])

    def _take_unit(self, unit: QueueUnit) -> None:
        if self._is_valid(unit.topic):
            key, offset = (unit.topic, unit.queue_id), unit.entry.physical_offset
            self._take_run(key, UnitRun(unit.queue_offset, 1, offset, offset), encode_entry(unit.entry))

    def _is_valid(self, topic: str) -> bool:
        """Return whether a topic can have a queue; the dispatcher reports the record of one that cannot."""
        if topic in self._invalid_topics:
            return False
        try:
            check_stored_topic(topic)
        except FormatError:
            self._invalid_topics.add(topic)
            self.result.is_damaged = True
            return False
        return True

    def _light_units(self, view: memoryview, columns: DispatchColumns, base: int) -> Iterator[QueueUnit]:
        from orbitlog.kernels.arrays import np

        for row in np.flatnonzero(columns.is_multi_dispatch):
            position = int(columns.physical_offset[row]) - base
            try:
                yield from queue_units(decode_message(view, position, check_crc=False), self._rules)[1:]
            except FormatError:
                self.result.is_damaged = True

    def _take_chunk(self, scan: DispatchScan, columns: DispatchColumns) -> None:
        """Take the units of a chunk, run by run."""
        from orbitlog.kernels.arrays import np
        from orbitlog.store.dispatch.kernel_dispatch import entering_rows, units_of

        rows = entering_rows(columns)
        codes, offsets = columns.queue_code[rows], columns.queue_offset[rows]
        places, units = columns.physical_offset[rows], units_of(columns, rows)
        breaks = np.flatnonzero((codes[1:] != codes[:-1]) | (offsets[1:] != offsets[:-1] + 1)) + 1
        bounds = [0, *breaks.tolist(), len(rows)] if len(rows) else []
        for start, stop in pairwise(bounds):
            key = self._key(scan, int(codes[start]))
            if key is not None:
                run = UnitRun(int(offsets[start]), stop - start, int(places[start]), int(places[stop - 1]))
                self._take_run(key, run, units[start:stop].tobytes())

    def _key(self, scan: DispatchScan, code: int) -> QueueKey | None:
        if code not in self._keys:
            key = scan.queues.queue(code)
            self._keys[code] = key if self._is_valid(key[0]) else None
        return self._keys[code]

    def _take_run(self, key: QueueKey, run: UnitRun, units: bytes) -> None:
        queue = self._queues.find_key(key)
        if queue is not None and not queue.segments.is_empty:
            run.matched_count = _count_equal(units, queue.stored_units(run.first, run.unit_count))
            self._queues.used(queue)
        runs = self.result.runs.setdefault(key, [])
        if runs and runs[-1].next_offset == run.first:
            last = runs[-1]
            last.unit_count += run.unit_count
            last.matched_count += run.matched_count
            last.ends_at = run.ends_at
        else:
            runs.append(run)


def _count_equal(units: bytes, stored: bytes) -> int:
    if units == stored:
        return len(units) // ENTRY_BYTES
    starts = range(0, min(len(units), len(stored)), ENTRY_BYTES)
    return sum(units[start : start + ENTRY_BYTES] == stored[start : start + ENTRY_BYTES] for start in starts)
