"""Split derivation: the queue units of one split of a log, sorted by queue, and its index keys.

Units of one queue file are one slice, in the order of the log; several if their offsets are not consecutive. Queue
offsets must rise by one from message to message: else two messages claim one unit or a unit has no message, and no
derived file could be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derive import DeriveRules, QueueUnit
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX, LONG_MAX
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd
from orbitlog.jobs.log_splits import DAMAGE, LOG_END, SEGMENT_END, LogSplit, WalkedSplit
from orbitlog.jobs.spurious_blanks import hides_records
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.dispatch import DispatchColumns, DispatchScan
from orbitlog.kernels.index_stream import KeyColumns
from orbitlog.kernels.queue_sort import UnitSorter
from orbitlog.kernels.row_dtypes import QUEUE_UNIT_DTYPE
from orbitlog.kernels.splits import find_record
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile

UNIT = QUEUE_UNIT_DTYPE

_FINDINGS_MAX = 100
QUEUE_OFFSET_MAX = LONG_MAX // ENTRY_BYTES - INT_MAX  # of a unit whose whole split still has places in files

Units = npt.NDArray[np.void]


class UnitSlice(NamedTuple):
    """Units of one queue file in one split: `unit_count` from queue offset `first` on; `place` is their number."""

    queue: int
    file_base: int
    first: int
    unit_count: int
    place: int
    last_timestamp_ms: int
    physical_offset: int = 0
    """Of the first of them."""
    last_physical_offset: int = 0


@dataclass(slots=True)
class SplitDerivation:
    """Everything that a split gives, but for the units, which are too many to be sent around."""

    walk: WalkedSplit
    key_count: int = 0
    # Messages after the last one that has a key: they may start an index file as well.
    messages_after_keys: int = 0
    last_physical_offset: int = 0
    last_timestamp_ms: int = 0
    queues: list[tuple[str, int]] = field(default_factory=list)
    slices: list[UnitSlice] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    finding_count: int = 0

    def as_report(self) -> dict[str, Any]:
        """Return what JSON can hold, with the figures that progress is drawn from."""
        report = {name: getattr(self, name) for name in self.__slots__}
        report["walk"] = self.walk.as_report()
        report["slices"] = list(map(tuple, self.slices))
        report["findings"] = [asdict(finding) for finding in self.findings]
        return report | {"scanned_bytes": scanned_bytes(self.walk.split), "messages": self.walk.message_count}

    @classmethod
    def from_report(cls, report: dict[str, Any]) -> SplitDerivation:
        return cls(
            walk=WalkedSplit.from_report(report["walk"]),
            queues=[(topic, queue_id) for topic, queue_id in report["queues"]],
            slices=[UnitSlice(*values) for values in report["slices"]],
            findings=[Finding.from_report(values) for values in report["findings"]],
            **{name: report[name] for name in _PLAIN_FIELDS},
        )

    def note(self, finding: Finding) -> None:
        self.finding_count += 1
        if len(self.findings) < _FINDINGS_MAX:
            self.findings.append(finding)


_PLAIN_FIELDS = ("key_count", "messages_after_keys", "last_physical_offset", "last_timestamp_ms", "finding_count")


def scanned_bytes(split: LogSplit) -> int:
    return split.stop - split.start


def derive_split(
    split: LogSplit,
    rules: DeriveRules,
    *,
    queue_file_bytes: int,
    check_crc: bool,
    batch_topics: frozenset[str] = frozenset(),
) -> tuple[SplitDerivation, Units, KeyColumns]:
    """Walk a split, passing over damage and noting it, and derive what its messages give: units by queue, and keys.

    Queue offsets of `batch_topics` are not judged: a record there may count for several.
    """
    collector = _Collector(rules)
    with mapped_view(Path(split.path)) as whole, whole[: split.segment_bytes] as view:
        walk, damage = _walk(view, split, collector, check_crc=check_crc, queue_file_bytes=queue_file_bytes)
    derivation = SplitDerivation(
        walk,
        key_count=collector.key_count,
        messages_after_keys=collector.messages_after_keys,
        last_physical_offset=collector.last_physical_offset,
        last_timestamp_ms=collector.last_timestamp_ms,
    )
    for finding in damage:
        derivation.note(finding)
    keys = collector.keys()
    units = collector.sorted_units(derivation, queue_file_bytes)
    if batch_topics:
        derivation.slices = [one for one in derivation.slices if derivation.queues[one.queue][0] not in batch_topics]
    _note_disorder(derivation, units)
    return derivation, units, keys


class _Passage(LogWalk):
    """How damage inside a split is passed over: as `LogWalk` does, with the kernel for searching."""

    def __init__(self, split: LogSplit, *, check_crc: bool) -> None:
        path = Path(split.path)
        self._split = split
        self._check_crc = check_crc
        self.segment = OffsetFile(path, split.base, path.stat().st_size, split.log_format)
        # Before anything is read: some file systems fill holes that are read.
        self._written_until = written_until(path)
        super().__init__([self.segment], split.segment_bytes, committed_end=split.committed_end)

    def _find(self, view: memoryview, start: int, segment: OffsetFile) -> int | None:
        return find_record(
            view,
            start,
            base_physical_offset=segment.base,
            log_format=segment.log_format,
            check_crc=self._check_crc,
        )

    def bare_record(self, view: memoryview, position: int, stop: Any) -> int | None:
        """Return the position of the record of an entry whose header is damaged, and note the header."""
        if not isinstance(stop, Damage) or self._record_after_header(view, position, self.segment) is None:
            return None
        record_position = position + self.segment.log_format.header_bytes
        self._note(self.segment, position, record_position, f"{stop.error.field}: {stop.error.problem}")
        self._damage.resume(self.segment.base + record_position)
        return record_position

    def after(self, view: memoryview, position: int, found: LogEnd | Damage | None) -> int | None:
        later = [file for file in self._split.all_segments() if file.base > self.segment.base]
        following = self._pass_over(view, self.segment, position, found, later)
        if following is not None:
            self._damage.resume(self.segment.base + following)
        return following

    def is_past_data(self, position: int) -> bool:
        return position >= self._written_until

    def after_blank(self, view: memoryview, split: LogSplit, position: int, *, queue_file_bytes: int) -> int | None:
        """Return where records continue after a spurious BLANK; None if the segment ends."""
        following = self._find_written(view, self.segment, position + 1)
        if following is None or not hides_records(view, split, position, following, queue_file_bytes=queue_file_bytes):
            return None
        self._note(self.segment, position, following, "a segment end, and the segment continues after it")
        self._damage.resume(self.segment.base + following)
        return following


def _walk(
    view: memoryview, split: LogSplit, collector: _Collector, *, check_crc: bool, queue_file_bytes: int
) -> tuple[WalkedSplit, Iterator[Finding]]:
    """Feed the messages of a split to the collector; returns the walk and what damage was met."""
    position = first = _first_record(view, split, check_crc=check_crc)
    if first is None or position is None:
        return WalkedSplit(split, None, split.start, 0), iter(())
    passage = _Passage(split, check_crc=check_crc)
    ended, end = None, len(view)
    while position is not None and position < split.stop:
        next_position, stop = collector.scan(view, position, split, check_crc=check_crc)
        if stop is None:
            position = next_position
            break
        if isinstance(stop, SegmentEnd):
            position = passage.after_blank(view, split, next_position, queue_file_bytes=queue_file_bytes)
            if position is not None:
                continue
            position, ended = next_position, SEGMENT_END
            break
        bare = passage.bare_record(view, next_position, stop)
        if bare is not None:
            position, stop = collector.scan_bare(view, bare, split)
            if stop is None:
                continue
        position = passage.after(view, next_position, stop)
        if position is None:
            ended = LOG_END if isinstance(stop, LogEnd) else DAMAGE
    if position == end:
        passage.after(view, end, None)
        ended = DAMAGE
    elif position is not None and ended is None and passage.is_past_data(position):
        # The last record ends at the data's end, or in the hole after it: the meaning of the hole is not known yet.
        next_position, ended = position, LOG_END
        position = passage.after(view, position, LogEnd(position))
    end_position = next_position if position is None else position
    findings = (Finding.of_damage(damage) for damage in passage.damage)
    return WalkedSplit(split, first, end_position, collector.message_count, ended), findings


def _first_record(view: memoryview, split: LogSplit, *, check_crc: bool) -> int | None:
    if split.first is not None or split.start == 0:
        return split.first or 0
    stop = min(split.stop, len(view))
    return find_record(
        view, split.start, stop, base_physical_offset=split.base, log_format=split.log_format, check_crc=check_crc
    )


class _Collector:
    """Gathers units and keys while a split is walked."""

    def __init__(self, rules: DeriveRules) -> None:
        self._scan = DispatchScan(rules)
        self._parts: list[DispatchColumns] = []
        self._light: list[QueueUnit] = []
        self.message_count = self.key_count = self.messages_after_keys = 0
        self.last_physical_offset = self.last_timestamp_ms = 0

    def scan_bare(self, view: memoryview, position: int, split: LogSplit) -> tuple[int, Any]:
        """Take the one record at a position, without a header before it."""
        bare = replace(split, stop=position + 1, log_format=LogFormat.ORDINARY)
        return self.scan(view, position, bare, check_crc=True)

    def scan(self, view: memoryview, position: int, split: LogSplit, *, check_crc: bool) -> tuple[int, Any]:
        stop = min(split.stop, len(view))
        for columns in self._scan.scan(
            view,
            position,
            stop,
            base_physical_offset=split.base,
            log_format=split.log_format,
            check_crc=check_crc,
        ):
            self._take(columns)
            self._light += self._scan.light_queue_units(view, columns, split.base)
        return self._scan.ended

    def _take(self, columns: DispatchColumns) -> None:
        rows = len(columns.physical_offset)
        self.message_count += rows
        keys = int(columns.key_ends[-1])
        if keys:
            # The first row that has reached the number of all keys is the last one that put any.
            last_with_keys = int(np.searchsorted(columns.key_ends, keys))
            self.messages_after_keys = rows - 1 - last_with_keys
        else:
            self.messages_after_keys += rows
        self.last_physical_offset = int(columns.physical_offset[-1])
        self.last_timestamp_ms = int(columns.store_timestamp_ms[-1])
        part = DispatchColumns._make(column.copy() for column in columns)
        part.key_ends[:] += self.key_count
        self.key_count += keys
        self._parts.append(part)

    def keys(self) -> KeyColumns:
        """Return the index keys of all messages, in the order of the log."""
        empty = KeyColumns(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32))
        return KeyColumns._make(
            np.concatenate([column, *(getattr(part, name) for part in self._parts)])
            for name, column in zip(KeyColumns._fields, empty, strict=True)
        )

    def sorted_units(self, derivation: SplitDerivation, queue_file_bytes: int) -> Units:
        """Return the units by queue, each queue's in the order of the log, and note slices."""
        derivation.queues = self._scan.queues.queues()
        sorter = UnitSorter()
        for part in self._parts if not self._light else [self._with_light_units(derivation.queues)]:
            sorter.add(part)
        self._parts.clear()
        found = sorter.sort(queue_file_bytes)
        units = found.raw.view(UNIT)
        starts = np.flatnonzero(found.begins)
        ends = np.append(starts[1:], len(units))
        bases = found.queue_offset[starts] * ENTRY_BYTES // queue_file_bytes * queue_file_bytes
        columns = (
            found.queue_code[starts],
            bases,
            found.queue_offset[starts],
            ends - starts,
            starts,
            found.store_timestamp_ms[ends - 1] if len(units) else starts,
            units["physical_offset"][starts].astype(np.int64),
            units["physical_offset"][ends - 1].astype(np.int64) if len(units) else starts,
        )
        derivation.slices = [UnitSlice(*values) for values in zip(*(part.tolist() for part in columns), strict=True)]
        return units

    def _with_light_units(self, queues: list[tuple[str, int]]) -> DispatchColumns:
        """Return all parts as one, with a row for each unit of a light queue, in the order of the log."""
        codes = {queue: code for code, queue in enumerate(queues)}
        for unit in self._light:
            codes.setdefault((unit.topic, unit.queue_id), len(codes))
        queues[:] = codes
        light = DispatchColumns.allocate(len(self._light), 0)
        light.sys_flag[:], light.is_multi_dispatch[:], light.key_ends[:] = 0, False, 0
        # A unit of a light queue has no time of its own at hand; the last message's is near enough for a file's time.
        light.store_timestamp_ms[:] = self.last_timestamp_ms
        light.queue_code[:] = [codes[unit.topic, unit.queue_id] for unit in self._light]
        light.queue_offset[:] = [unit.queue_offset for unit in self._light]
        for name in ("physical_offset", "size_bytes", "tags_code"):
            getattr(light, name)[:] = [getattr(unit.entry, name) for unit in self._light]
        joined = [np.concatenate(columns) for columns in zip(*self._parts, light, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        return DispatchColumns._make([*(column[order] for column in joined[:-1]), joined[-1]])


def _note_disorder(derivation: SplitDerivation, units: Units) -> None:
    """Note queue offsets that are out of range or not consecutive, and topics that are not valid directory names."""
    split = derivation.walk.split
    before: UnitSlice | None = None
    unnamed: list[Finding] = []
    for part in derivation.slices:
        topic, queue_id = derivation.queues[part.queue]
        physical_offset = int(units["physical_offset"][part.place])
        if before is None or before.queue != part.queue:
            before = None
            try:
                tree.queue_directory(topic, queue_id)
            except FormatError as error:
                reason = f"{error.field} {error.problem}"
                unnamed.append(_disorder(split, physical_offset, reason, topic, queue_id, part.first))
        expected = part.first if before is None else before.first + before.unit_count
        left_out = part.first - expected
        if not 0 <= part.first <= QUEUE_OFFSET_MAX:
            reason = f"queue offset {part.first} is out of range"
            derivation.note(_disorder(split, physical_offset, reason, topic, queue_id, part.first, left_out))
        elif part.first != expected:
            reason = f"queue offset {part.first} follows {expected - 1}"
            found = _disorder(split, physical_offset, reason, topic, queue_id, part.first, left_out)
            derivation.note(replace(found, previous_queue_offset=expected - 1))
        before = part
    for finding in unnamed:
        derivation.note(finding)


def _disorder(  # noqa: PLR0917
    split: LogSplit, physical_offset: int, reason: str, topic: str, queue_id: int, queue_offset: int, left_out: int = 0
) -> Finding:
    return Finding(
        FindingKind.QUEUE_ORDER,
        split.path,
        reason,
        position=physical_offset - split.base,
        count=max(left_out, 1),
        physical_offset=physical_offset,
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
    )
