"""A walk over the whole log, segment by segment, that survives damage.

`LogWalk.records()` yields every record that can be read; what cannot be read is in `LogWalk.damage` afterwards, one
`DamagedRange` each. Nothing is assumed: a record must have its own physical offset, and its body the right CRC.

What ends a segment, and what it means: BLANK: the next segment follows. Zeros: the end of the log, unless a record
or another segment with records follows. End of file: the file was cut, for a segment always keeps room for a BLANK.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Sequence

from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES, ENTRY_MAGIC
from orbitlog.formats.records.log_format import LogFormat, LogFound, find_file_end, find_in_log, read_log_at
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, Message
from orbitlog.formats.records.message_scan import BLANK_BYTES, Damage, LogEnd, SegmentEnd, read_at
from orbitlog.storefiles.damage import DamagedRange, DamageList
from orbitlog.storefiles.mapped_view import end_of_written, first_written, holds_data, mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile

_SIZE_AND_MAGIC = struct.Struct(">iI")
_SIZE = struct.Struct(">i")
# A record starts with its size, whose high bytes are zero: the first byte that is not zero may be its fourth.
_LEADING_ZEROS_MAX = 3

StoredMessage = tuple[Message, int]


class LogWalk:
    """One pass over segments of one log, in order; `segment_bytes` is the size that each should have.

    With `committed_end` the walk ends at that physical offset, and zeros earlier are damage. It must be the end of an
    entry, see `store_log.committed_end`.
    """

    def __init__(
        self,
        segments: Sequence[OffsetFile],
        segment_bytes: int,
        *,
        start: int = 0,
        committed_end: int | None = None,
    ) -> None:
        self._segment_bytes = segment_bytes
        self._start = start
        self._committed_end = committed_end
        self._segments = [file for file in segments if file.base + max(segment_bytes, file.size_bytes) > start]
        self._damage = DamageList("physical offset")
        self.segments_read = 0

    @property
    def damage(self) -> list[DamagedRange]:
        """What could not be read so far, in the order of the log."""
        return self._damage.ranges

    def records(self) -> Generator[StoredMessage, None, None]:
        """Yield each message with the size of its record, from the first at or after `start` on."""
        expected_base = self._segments[0].base if self._segments else 0
        for number, segment in enumerate(self._segments):
            if self._committed_end is not None and segment.base >= self._committed_end:
                return
            self._damage.note_place(segment, expected_base)
            expected_base = segment.base + self._segment_bytes
            self.segments_read += 1
            with mapped_view(segment.path) as whole, whole[: self._segment_bytes] as view:
                yield from self._segment_records(view, segment, self._segments[number + 1 :])
        if self._segments and self._committed_end is not None and expected_base < self._committed_end:
            last, end = self._segments[-1], self._committed_end
            reason = "the log ends before its committed end: the files after this one are missing"
            self._note(last, self._segment_bytes, end - last.base, reason)

    def _segment_records(
        self, view: memoryview, segment: OffsetFile, later: Sequence[OffsetFile]
    ) -> Iterator[StoredMessage]:
        base, end = segment.base, len(view)
        damage = self._damage
        stop = self._committed_position(segment)
        position: int | None = self._first_position(view, segment)
        while position is not None and (stop is None or position < stop):
            found = self._read(view, position, segment) if position < end else None
            if isinstance(found, Damage) and (bare := self._record_after_header(view, position, segment)) is not None:
                self._note(segment, position, position + ENTRY_HEADER_BYTES, _reason_of(found))
                found = bare
            if isinstance(found, Message):
                if damage.waits:
                    damage.resume(found.physical_offset)
                # Not simply `position`: if entries have headers, the record follows its header.
                record_position = found.physical_offset - base
                size_bytes = _SIZE.unpack_from(view, record_position)[0]
                yield found, size_bytes
                position = record_position + size_bytes
            elif isinstance(found, SegmentEnd):
                break
            else:
                position = self._pass_over(view, segment, position, found, later)
        if segment.size_bytes > self._segment_bytes:
            reason = f"the file has {segment.size_bytes} bytes, a segment has {self._segment_bytes}"
            self._note(segment, self._segment_bytes, segment.size_bytes, reason)

    def _committed_position(self, segment: OffsetFile) -> int | None:
        """Return the position up to which a segment has committed entries, None if that is not known."""
        if self._committed_end is None:
            return None
        return min(self._committed_end - segment.base, self._segment_bytes)

    def _read(self, view: memoryview, position: int, segment: OffsetFile) -> LogFound:
        return read_log_at(view, position, segment.log_format, base_physical_offset=segment.base)

    def _record_after_header(self, view: memoryview, position: int, segment: OffsetFile) -> Message | None:
        """Return the record of an entry whose header is damaged: it has its own offset and CRC, and is not lost."""
        if segment.log_format is LogFormat.ORDINARY:
            return None
        found = read_at(view, position + ENTRY_HEADER_BYTES, base_physical_offset=segment.base)
        return found if isinstance(found, Message) else None

    def _find(self, view: memoryview, start: int, segment: OffsetFile) -> int | None:
        """Return the position of the first record or entry, or of the end of the segment, at or after `start`."""
        return find_in_log(view, start, segment.log_format, base_physical_offset=segment.base)

    def _find_written(self, view: memoryview, segment: OffsetFile, start: int) -> int | None:
        """Find as `_find` does, but without reading the hole that most of the last segment is."""
        end = written_until(segment.path)
        with view[:end] as written:
            following = self._find(written, start, segment)
        if following is not None or end >= len(view):
            return following
        # The mark at the end of a segment is one only if its length reaches to the end of the whole segment.
        return find_file_end(view, start, end, segment.log_format)

    def _first_position(self, view: memoryview, segment: OffsetFile) -> int:
        """Return the position of the first record at or after the walk's start, or of the end of the segment."""
        wanted = self._start - segment.base
        if wanted <= 0:
            return 0
        position = self._jump(view, wanted, segment.log_format)
        found = self._read(view, position, segment)
        is_reached = position + segment.log_format.header_bytes >= wanted
        if isinstance(found, SegmentEnd) or (is_reached and not isinstance(found, Damage)):
            return position
        # The records before the start are damaged, and not wanted.
        following = self._find_written(view, segment, wanted)
        return max(wanted, position) if following is None else following

    def _jump(self, view: memoryview, wanted: int, log_format: LogFormat) -> int:
        """Go from record to record by their sizes alone, up to the start or to an invalid size."""
        position, end = 0, len(view) - BLANK_BYTES
        while position + log_format.header_bytes < wanted and position <= end:
            if log_format is LogFormat.DLEDGER:
                magic, size_bytes = _SIZE_AND_MAGIC.unpack_from(view, position)
                is_right = magic == ENTRY_MAGIC and size_bytes >= ENTRY_HEADER_BYTES + RECORD_BYTES_MIN
            else:
                size_bytes, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
                is_right = magic in (MAGIC_V1, MAGIC_V2) and size_bytes >= RECORD_BYTES_MIN
            if not is_right:
                break
            position += size_bytes
        return position

    def _pass_over(
        self,
        view: memoryview,
        segment: OffsetFile,
        position: int,
        found: LogEnd | Damage | None,
        later: Sequence[OffsetFile],
    ) -> int | None:
        """Skip damage: return the position of the next record in this segment, or None to leave the segment."""
        match found:
            case None:
                self._note(segment, position, self._segment_bytes, "the file ends without a segment end")
                return None
            case LogEnd():
                return self._pass_zeros(view, segment, position, later)
            case Damage():
                following = self._find_written(view, segment, position + 1)
                end = self._end_of_damage(view, segment, position, later) if following is None else following
                self._note(segment, position, end, _reason_of(found))
                return following

    def _pass_zeros(
        self, view: memoryview, segment: OffsetFile, position: int, later: Sequence[OffsetFile]
    ) -> int | None:
        written = first_written(view, position, written_until(segment.path))
        committed = self._committed_position(segment)
        if written is None and committed is not None:
            self._note(segment, position, committed, "zeros where committed entries should be")
            return None
        if written is None:
            goes_on = next((file for file in later if holds_data(file.path)), None)
            if goes_on is not None:
                reason = f"only zeros up to the end of the segment, though the log continues in {goes_on.path.name}"
                self._note(segment, position, self._segment_bytes, reason)
            elif len(view) < self._segment_bytes:
                self._note(segment, len(view), self._segment_bytes, "the file ends too early")
            return None
        search_from = max(position + 1, written - _LEADING_ZEROS_MAX)
        following = self._find_written(view, segment, search_from)
        if following is None:
            end = self._end_of_damage(view, segment, position, later)
            self._note(segment, position, end, f"zeros, and from byte {written} on bytes that are not a record")
        else:
            self._note(segment, position, following, "zeros where records should be")
        return following

    def _end_of_damage(self, view: memoryview, segment: OffsetFile, position: int, later: Sequence[OffsetFile]) -> int:
        """Damage without a record after it ends with the segment; at the end of the log, with the last byte written."""
        if len(view) < self._segment_bytes or any(holds_data(file.path) for file in later):
            return self._segment_bytes
        return max(end_of_written(view, position, written_until(segment.path)), position + 1)

    def _note(self, segment: OffsetFile, position: int, end: int, reason: str) -> None:
        if segment.size_bytes < self._segment_bytes:
            reason += f"; the file has only {segment.size_bytes} of {self._segment_bytes} bytes"
        self._damage.note(segment, position, end, reason)


def _reason_of(damage: Damage) -> str:
    return f"{damage.error.field}: {damage.error.problem}"
