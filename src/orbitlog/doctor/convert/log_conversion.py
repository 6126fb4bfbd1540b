"""Log conversion: copies the records of a DLedger log into ordinary CommitLog segments.

Records lose their 48-byte entry headers and move to lower physical offsets. The new log begins at the physical offset
at which the old one begins, so queue units of expired records stay valid. A progress file is replaced after each
finished segment: a run that was killed continues there.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES
from orbitlog.formats.records.message_scan import BLANK, BLANK_BYTES, MAGIC_BLANK
from orbitlog.formats.records.relocation import relocate_record
from orbitlog.storefiles.disk import Disk, PlainFile, disk_errors
from orbitlog.storefiles.replicated_log import ReplicatedLog, SourceRecord

Progress = Callable[[int, int], None]
"""Takes bytes of the old log and records done."""
_PROGRESS_FILE = "progress.json"
_BUFFER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Anchor:
    """A record after which offsets move evenly: no file of either log ends before the next anchor."""

    old: int
    new: int
    index: int | None


@dataclass(slots=True)
class ConvertedLog:
    """What the conversion of the log has done so far."""

    next_old: int
    next_new: int
    record_count: int = 0
    last_store_ms: int = 0
    anchors: list[Anchor] = field(default_factory=list)


class LogConversion:
    """Converts one log into `directory`; `state` is a directory for the progress file."""

    def __init__(self, disk: Disk, log: ReplicatedLog, directory: Path, state: Path, segment_bytes: int) -> None:
        self._disk = disk
        self._log = log
        self._directory = directory
        self._state = state
        self._segment_bytes = segment_bytes
        if log.start % segment_bytes:
            raise StoreLayoutError(
                f"the log begins at physical offset {log.start}, which is not a multiple of {segment_bytes}; leave"
                " mappedFileSizeCommitLog as the source has it"
            )
        self._fingerprint = _fingerprint(log, segment_bytes)
        self.done = self._continued()
        self._base = self.done.next_new
        self._segment: PlainFile | None = None
        self._buffer = bytearray()
        self._written_bytes = 0
        self._modified_ns = 0

    def run(self, progress: Progress | None = None) -> ConvertedLog:
        """Convert everything that is left; return what was done in all."""
        done, last_file = self.done, None
        with disk_errors(f"writing {self._directory}"):
            self._disk.make_directory(self._directory)
            try:
                for record in self._log.records(done.next_old):
                    is_new_segment = self._make_room(record)
                    if is_new_segment or record.file is not last_file:
                        done.anchors.append(Anchor(record.message.physical_offset, done.next_new, record.index))
                        modified_ns = record.file.file.path.stat().st_mtime_ns
                        self._modified_ns = max(self._modified_ns, modified_ns)
                    last_file = record.file
                    self._append(record)
                    if progress is not None:
                        progress(record.end - self._log.start, done.record_count)
                self._finish_segment(is_last=True)
            finally:
                if self._segment is not None:
                    self._segment.close()
        return done

    def translate(self, physical_offset: int) -> int | None:
        """Return the new physical offset of a record that was converted, None if there was none at the old one."""
        anchors = self.done.anchors
        number = bisect_right(anchors, physical_offset, key=lambda anchor: anchor.old) - 1
        if number < 0:
            return None
        found = self._log.translate_start(physical_offset)
        if found is None or physical_offset >= self.done.next_old:
            return None
        anchor, (_, index) = anchors[number], found
        headers = 0 if index is None or anchor.index is None else (index - anchor.index) * ENTRY_HEADER_BYTES
        return anchor.new + physical_offset - anchor.old - headers

    def _append(self, record: SourceRecord) -> None:
        done = self.done
        self._buffer += relocate_record(record.raw, done.next_new, self.translate)
        if len(self._buffer) >= _BUFFER_BYTES:
            self._write_buffer()
        done.next_new += len(record.raw)
        done.next_old = record.end
        done.record_count += 1
        done.last_store_ms = record.message.store_timestamp_ms

    def _make_room(self, record: SourceRecord) -> bool:
        """Begin a segment if the record and a BLANK do not fit into the current one; return whether one was begun.

        A record of an ordinary segment stays in that segment: brokers end one early for a batch that does not fit.
        """
        size_bytes = len(record.raw)
        if size_bytes + BLANK_BYTES > self._segment_bytes:
            raise StoreLayoutError(
                f"a record of {size_bytes} bytes does not fit into a segment of {self._segment_bytes}; give a larger"
                " mappedFileSizeCommitLog"
            )
        room = self._base + self._segment_bytes - self.done.next_new
        is_of_next = not record.file.is_dledger and record.message.physical_offset >= self._base + self._segment_bytes
        if self._segment is not None and size_bytes + BLANK_BYTES <= room and not is_of_next:
            return False
        if self._segment is not None:
            self._buffer += BLANK.struct.pack(room, MAGIC_BLANK)
            self._finish_segment(is_last=False)
        path = self._directory / tree.offset_file_name(self._base)
        self._disk.remove_file(path)  # an earlier run may have left a part of it
        self._segment = self._disk.create_plain(path)
        return True

    def _write_buffer(self) -> None:
        assert self._segment is not None
        self._segment.write(self._written_bytes, bytes(self._buffer))
        self._written_bytes += len(self._buffer)
        self._buffer.clear()

    def _finish_segment(self, *, is_last: bool) -> None:
        segment = self._segment
        if segment is None:
            return
        self._write_buffer()
        segment.resize(self._segment_bytes)
        segment.set_modified(self._modified_ns)
        # The segment and its name must be durable before the progress file records it as written.
        segment.sync()
        segment.close()
        self._disk.sync_directory(self._directory)
        self._segment, self._modified_ns, self._written_bytes = None, 0, 0
        if not is_last:
            self._base += self._segment_bytes
            self.done.next_new = self._base
        self._save()

    def _save(self) -> None:
        done = self.done
        document = {
            "source": self._fingerprint,
            "nextOld": done.next_old,
            "nextNew": done.next_new,
            "records": done.record_count,
            "lastStoreMs": done.last_store_ms,
            "anchors": [[anchor.old, anchor.new, anchor.index] for anchor in done.anchors],
        }
        self._disk.replace_file(self._state / _PROGRESS_FILE, json.dumps(document).encode())

    def _continued(self) -> ConvertedLog:
        """Return where an earlier run stopped; raise `StoreLayoutError` if the source has changed since."""
        path = self._state / _PROGRESS_FILE
        if not path.is_file():
            return ConvertedLog(self._log.start, self._log.start)
        saved: Mapping[str, Any] = json.loads(path.read_bytes())
        if saved["source"] != self._fingerprint:
            raise StoreLayoutError(
                f"{self._state.parent} is a conversion of this store as it was earlier; remove that directory and"
                " begin again"
            )
        anchors = [Anchor(*values) for values in saved["anchors"]]
        done = ConvertedLog(saved["nextOld"], saved["nextNew"], saved["records"], saved["lastStoreMs"], anchors)
        if done.next_new % self._segment_bytes and done.next_new != self._log.start:
            # The last segment is complete, and with it the log: nothing is left to convert.
            done.next_old = max(done.next_old, self._log.files[-1].file.base + self._log.files[-1].file.size_bytes)
        return done


def _fingerprint(log: ReplicatedLog, segment_bytes: int) -> list[object]:
    files = [[part.file.path.name, part.file.size_bytes] for part in log.files]
    limits = [log.checkpoint.committed_index, log.committed_end, log.accepts_uncommitted]
    return [log.member, *limits, segment_bytes, files]
