"""Log tail: a last record that lost properties to zeros, and a log that ends before messages that other files refer to.

Both show only in files besides the log. A broker refuses such a store, or cuts the record off, as
`orbitlog.store.recovery` decides; the findings here follow the same rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orbitlog.doctor.surveys.lost_messages import LogRange, LostMessage, describe_units, find_lost
from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint, decode_checkpoint
from orbitlog.formats.derived.index_layout import INDEX_HEADER, decode_header
from orbitlog.formats.derived.store_state import REPLICA_FILE, STATE_FILE, StoreState, decode_state
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.message_scan import SegmentEnd, read_at
from orbitlog.jobs.store_use import StoreUse
from orbitlog.store.log.log_end import KnownLog, is_torn
from orbitlog.store.recovery.short_log import ENOUGH_EVIDENCE
from orbitlog.store.recovery.store_recovery import goes_with, is_zeroed, known_log
from orbitlog.storefiles.confined.regular_files import read_below
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_files import StoreFiles


@dataclass(frozen=True, slots=True)
class LogTail:
    """What the small files of a store record about the end of its log."""

    store: StoreFiles
    segment_bytes: int
    checkpoint: Checkpoint
    state: StoreState | None
    """The state file, if it belongs to the checkpoint."""
    known: KnownLog

    @classmethod
    def of(cls, store: StoreFiles, segment_bytes: int, use: StoreUse) -> LogTail | None:
        """Return the tail of a log that brokers write to; None beside a running broker, and for a DLedger log."""
        if not store.segments or any(store.dledger_segments.values()) or use.is_in_use(store):
            return None
        checkpoint, state = _checkpoint_of(store), _state_of(store)
        known = known_log(checkpoint, state, was_closed=store.abort is None)
        if _content(store, REPLICA_FILE) is not None:
            known = replace(known, is_own=False)
        return cls(store, segment_bytes, checkpoint, state if state and goes_with(checkpoint, state) else None, known)

    def findings(self, log_end: int, last_stored_ms: int) -> Iterator[Finding]:
        """Yield the findings about a log whose last readable record ends at `log_end`."""
        short = self._short_log(self._after_blanks(log_end), last_stored_ms)
        if short is not None:
            yield short
        torn = self._torn_record() if self.known.is_own else None
        if torn is None and short is not None:
            torn = self._cut_record(log_end)
        if torn is not None:
            yield self._torn_finding(torn, log_end)

    def _after_blanks(self, log_end: int) -> int:
        """Return the offset at which the log continues after the BLANK records at its end."""
        while (segment := self.store.segment_at(log_end)) is not None:
            with mapped_view(segment.path) as whole, whole[: self.segment_bytes] as view:
                if not isinstance(read_at(view, log_end - segment.base), SegmentEnd):
                    break
            log_end = segment.base + self.segment_bytes
        return log_end

    def _short_log(self, log_end: int, last_stored_ms: int) -> Finding | None:
        """Return a finding if messages after the end of the log were stored durably."""
        last = self.store.segments[-1]
        units = find_lost(self.store, [LogRange(log_end, last.base + self.segment_bytes)])
        evidence = self._evidence(log_end, last_stored_ms, units)
        if not evidence:
            return None
        segment = self.store.segment_at(log_end) or last
        topics = {one.topic for one in units}
        return Finding(
            FindingKind.LOG_END,
            str(segment.path),
            f"the log ends here, though {' and '.join(evidence)}; {describe_units(units, 'after it')}",
            position=log_end - segment.base,
            count=max((one.physical_offset + one.size_bytes for one in units), default=log_end) - log_end,
            physical_offset=log_end,
            topic=topics.pop() if len(topics) == 1 else None,
        )

    def _evidence(self, log_end: int, last_stored_ms: int, units: Sequence[LostMessage]) -> list[str]:
        """Return what shows that the log was longer; nothing if a crash can have left all of it."""
        if self.state is not None and self.state.dispatched_to > log_end:
            return [f"{STATE_FILE} records messages up to {self.state.dispatched_to}"]
        flushed_ms = self.checkpoint.physic_msg_timestamp_ms
        if self.store.abort is not None:
            is_flushed = bool(units) and flushed_ms > last_stored_ms
            return [f"{tree.CHECKPOINT} records a flush of messages stored up to {flushed_ms}"] if is_flushed else []
        # No bit error makes a unit refer to just that offset: the log had a record there.
        weight = sum(ENOUGH_EVIDENCE if one.physical_offset == log_end else 1 for one in units)
        found = ["queues refer to messages after it"] if units else []
        if self.checkpoint.logics_physical_offset >= log_end > 0:
            found.append(f"{tree.CHECKPOINT} records a flushed message after it")
            weight += 1
        if any(_index_end(file.path) >= log_end > 0 for file in self.store.index_files):
            found.append("the index refers to messages after it")
            weight += 1
        return [*found, "the broker was stopped cleanly"] if weight >= ENOUGH_EVIDENCE else []

    def _torn_record(self) -> Message | None:
        """Return the first record at the end of a log by Orbitlog that lost properties to zeros."""
        start = self.known.last_durable_physical_offset
        if self.state is not None:
            start = self.state.dispatched_to
            last = self.state.last_record
            durable = last.physical_offset if last is not None else self.checkpoint.logics_physical_offset
            found = next(self._records_from(durable), None)
            if found is not None and is_zeroed(found, last):
                return found
        return next((message for message in self._records_from(start) if self.known.is_torn(message)), None)

    def _cut_record(self, log_end: int) -> Message | None:
        """Return the last record of a log that ends too early, if it ends with zeros: the cut is inside of it."""
        segment = self.store.segment_at(log_end - 1)
        if segment is None:
            return None
        (last,) = deque(LogWalk([segment], self.segment_bytes).records(), 1) or (None,)
        return last[0] if last is not None and last[0].properties_raw.endswith(b"\0") and is_torn(last[0]) else None

    def _records_from(self, physical_offset: int) -> Iterator[Message]:
        """Yield the records from the one at an offset on, up to the first that cannot be read."""
        while (segment := self.store.segment_at(physical_offset)) is not None:
            with mapped_view(segment.path) as whole, whole[: self.segment_bytes] as view:
                position = physical_offset - segment.base
                found = read_at(view, position, base_physical_offset=segment.base)
                while isinstance(found, Message):
                    yield found
                    position += found.size_bytes
                    found = read_at(view, position, base_physical_offset=segment.base)
            if not isinstance(found, SegmentEnd):
                return
            physical_offset = segment.base + self.segment_bytes

    def _torn_finding(self, torn: Message, log_end: int) -> Finding:
        segment = self.store.segment_at(torn.physical_offset)
        assert segment is not None
        later = log_end - torn.physical_offset - torn.size_bytes
        more = f", and {later} bytes of records after it were never flushed" if later else ""
        return Finding(
            FindingKind.TORN_RECORD,
            str(segment.path),
            f"the record has zeros in place of properties{more}",
            position=torn.physical_offset - segment.base,
            count=log_end - torn.physical_offset,
            physical_offset=torn.physical_offset,
        )


def _checkpoint_of(store: StoreFiles) -> Checkpoint:
    try:
        return decode_checkpoint(_content(store, tree.CHECKPOINT) or b"")
    except FormatError:
        return Checkpoint()


def _state_of(store: StoreFiles) -> StoreState | None:
    try:
        return decode_state(_content(store, STATE_FILE) or b"")
    except FormatError:
        return None


def _content(store: StoreFiles, name: str) -> bytes | None:
    """Return the content of a small file; None for anything else under that name, which has its own finding."""
    path = store.root / name
    return read_below(store.root, path) if path.is_file() and not path.is_symlink() else None


def _index_end(path: Path) -> int:
    """Return the physical offset of the last key of an index file; -1 if it has none."""
    with path.open("rb") as opened:
        try:
            header = decode_header(opened.read(INDEX_HEADER.size_bytes))
        except FormatError:
            return -1
    return header.end_physical_offset if header.end_timestamp_ms else -1
