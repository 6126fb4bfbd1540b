"""Log completeness: parts of the CommitLog that are links, unreadable or missing.

A rebuild from such a log would drop the queue units of every message that is not there, and a repair would put
placeholders over messages that may only be on another disk. So both refuse, and a check reports this first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import CHECKPOINT, decode_checkpoint
from orbitlog.formats.derived.index_layout import INDEX_HEADER, decode_header
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.names import LMQ_PREFIX
from orbitlog.formats.records.log_format import LogFormat, read_log_at
from orbitlog.formats.records.message import Message
from orbitlog.jobs.split_derivation import UNIT
from orbitlog.jobs.store_use import SHARED_USE, StoreUse
from orbitlog.kernels.arrays import np, npt
from orbitlog.kernels.row_dtypes import PLACE_DTYPE, places_of
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.mapped_view import holds_data, mapped_view, written_until
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles
from orbitlog.storefiles.store_paths import where_else

_NOWHERE = range(0)
ACCEPT_OPTION = "--accept-lost-segments"


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A part of the log that could not be read, and the physical offsets that it covers, if known.

    `may_be_lost` is set if no file is there: an operator without a copy can accept the loss.
    """

    finding: Finding
    offsets: range = _NOWHERE
    may_be_lost: bool = False


def missing_parts(
    store: StoreFiles, segment_bytes: int, *, reads_queues: bool = True, use: StoreUse = SHARED_USE
) -> list[MissingPart]:
    """Return the parts of the log that are not in the store, those that explain most first.

    `reads_queues` is false if the caller knows that no queue has units for messages after the last segment.
    """
    elsewhere = [*_links(store, segment_bytes), *_unreadable(store, segment_bytes)]
    explained = [part.offsets for part in elsewhere]
    if elsewhere and any(not offsets for offsets in explained):
        return elsewhere  # the directory itself is a link
    gaps = [part for part in _gaps(store, segment_bytes) if not _is_inside(part.offsets, explained)]
    if contradiction := _contradiction(store):
        return [*elsewhere, *([] if elsewhere else [contradiction])]
    # The queues of a broker that runs may be ahead of the listing of its segments.
    at_end = list(_missing_end(store, segment_bytes)) if reads_queues and not use.is_in_use(store) else []
    return [*elsewhere, *gaps, *(part for part in at_end if not _is_inside(part.offsets, explained))]


def refuse_incomplete_log(
    store: StoreFiles, segment_bytes: int, *, accept_lost_segments: bool = False, use: StoreUse = SHARED_USE
) -> None:
    """Raise `StoreLayoutError` if derived files made from this log would lack messages that the store may have.

    Gaps between segments do not raise here: the findings of the walk over the log report them.
    """
    gaps = {part.finding for part in _gaps(store, segment_bytes)}
    for part in missing_parts(store, segment_bytes, use=use):
        is_accepted = part.may_be_lost and accept_lost_segments
        if part.finding not in gaps and not is_accepted:
            raise StoreLayoutError(f"nothing is rebuilt from an incomplete log: {part.finding}")


def with_readable_segments(store: StoreFiles) -> StoreFiles:
    """Return the store without the segments that cannot be opened."""
    segments = tuple(segment for segment in store.segments if _can_open(segment.path))
    return store if len(segments) == len(store.segments) else replace(store, segments=segments)


def _is_inside(offsets: range, explained: Sequence[range]) -> bool:
    """Return whether the first offset of a range is in one of others."""
    return any(offsets.start in other for other in explained)


def _links(store: StoreFiles, segment_bytes: int) -> Iterator[MissingPart]:
    for entry in store.foreign:
        is_log = entry.path in store.paths.log_directories
        is_in_log = entry.path.parent in store.paths.log_directories
        base = tree.parse_offset_file_name(entry.path.name) if is_in_log else None
        if not entry.path.is_symlink() or (base is None and not is_log):
            continue
        offsets = range(base, base + segment_bytes) if base is not None else _NOWHERE
        target = entry.path.parent / entry.path.readlink()
        what = "the segment" if base is not None else "the log"
        if entry.path.exists():
            reason = f"{what} is a link to {target}, which is not followed: move or mount the files here instead"
            yield MissingPart(Finding(FindingKind.LINK, str(entry.path), reason, physical_offset=base), offsets)
        else:
            reason = f"{what} is a link to {target}, which does not exist: mount that disk, or restore the files"
            yield MissingPart(
                Finding(FindingKind.LINK, str(entry.path), reason, physical_offset=base), offsets, base is not None
            )


def _unreadable(store: StoreFiles, segment_bytes: int) -> Iterator[MissingPart]:
    for segment in store.segments:
        if not _can_open(segment.path):
            reason = "the segment cannot be opened for reading: check the permissions of the file"
            finding = Finding(FindingKind.UNREADABLE, str(segment.path), reason, physical_offset=segment.base)
            yield MissingPart(finding, range(segment.base, segment.base + segment_bytes))


def _can_open(path: Path) -> bool:
    return os.access(path, os.R_OK)


def _gaps(store: StoreFiles, segment_bytes: int) -> Iterator[MissingPart]:
    """Yield the places between two segments where at least one file is missing.

    A segment whose name does not fit its records is misplaced: that is not a gap, and a repair renames it.
    """
    for before, segment in pairwise(store.segments):
        start = before.base + segment_bytes
        is_aligned = (segment.base - start) % segment_bytes == 0
        if segment.base > start and is_aligned and not _is_misplaced(segment):
            yield _missing(store, before, start, segment.base, "though the log continues after it")


def _is_misplaced(segment: OffsetFile) -> bool:
    """Return whether the first record of a segment has an offset in another segment."""
    if not segment.size_bytes or not _can_open(segment.path):
        return False
    with mapped_view(segment.path) as view:
        first = read_log_at(view, 0, segment.log_format, check_crc=False)
    return isinstance(first, Message) and first.physical_offset != segment.base + segment.log_format.header_bytes


def _missing(store: StoreFiles, before: OffsetFile, start: int, stop: int, why: str) -> MissingPart:
    path = store.paths.find_segment(start, stop - start)
    if before.log_format is LogFormat.DLEDGER:
        path = before.path.parent / path.name
    reason = f"{stop - start} bytes of the log are missing here, {why}: put the file back"
    finding = Finding(FindingKind.SEGMENT, str(path), reason, count=stop - start, physical_offset=start)
    return MissingPart(finding, range(start, stop), may_be_lost=True)


def _contradiction(store: StoreFiles) -> MissingPart | None:
    """Return a finding if the log has no message at all, and other files refer to messages."""
    if any(holds_data(segment.path) for segment in store.segments if segment.size_bytes):
        return None
    evidence = []
    if units := sum(_has_units(file) for files in store.queues.values() for file in files):
        evidence.append(f"{units} queue files with units")
    if entries := sum(_has_entries(file.path) for file in store.index_files):
        evidence.append(f"{entries} index files with entries")
    if _is_checkpoint_set(store):
        evidence.append("a checkpoint with the timestamp of a message")
    if not evidence:
        return None
    what = "is empty" if store.segments else "has no segment"
    advice = f"put the segments back; {where_else(store.paths)}"
    reason = f"the log {what}, but the store has {' and '.join(evidence)}: {advice}"
    return MissingPart(Finding(FindingKind.LOG, store.paths.shown, reason))


def _has_units(file: OffsetFile) -> bool:
    return file.size_bytes > 0 and holds_data(file.path)


def _has_entries(path: Path) -> bool:
    with path.open("rb") as opened:
        try:
            return decode_header(opened.read(INDEX_HEADER.size_bytes)).end_timestamp_ms > 0
        except FormatError:
            return False


def _is_checkpoint_set(store: StoreFiles) -> bool:
    if store.checkpoint is None or store.checkpoint.size_bytes < CHECKPOINT.size_bytes:
        return False
    with store.checkpoint.path.open("rb") as file:
        checkpoint = decode_checkpoint(file.read(CHECKPOINT.size_bytes))
    return max(checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms) > 0


def _missing_end(store: StoreFiles, segment_bytes: int) -> Iterator[MissingPart]:
    """Yield the range after the last segment if queues end with units for messages in it.

    One such unit may be noise, unless it is for the record with which the missing segment begins.
    """
    if not store.segments:
        return
    end = store.segments[-1].base + segment_bytes
    empty = np.zeros(0, PLACE_DTYPE)
    units = np.concatenate([empty, *(_units_after(files, end) for files in _plain_queues(store.queues))])
    places = units["physical_offset"]
    if not len(units) or not end <= places.min() < end + segment_bytes:
        return
    first_record = end + store.segments[-1].log_format.header_bytes
    if len(units) > 1 or places[0] == first_record:
        stop = int((places + units["size_bytes"]).max())
        stop = end + -(-(stop - end) // segment_bytes) * segment_bytes
        yield _missing(
            store, store.segments[-1], end, stop, "though queues have units for messages after the last segment"
        )


def _plain_queues(queues: Mapping[tuple[str, int], tuple[OffsetFile, ...]]) -> Iterator[tuple[OffsetFile, ...]]:
    return (files for (topic, _), files in queues.items() if files and not topic.startswith(LMQ_PREFIX))


def _units_after(files: Sequence[OffsetFile], end: int) -> npt.NDArray[np.void]:
    """Return physical offset and size of the units with which a queue ends, if they are for messages after `end`."""
    found: list[npt.NDArray[np.void]] = [np.zeros(0, PLACE_DTYPE)]
    for file in reversed(files):
        count = written_until(file.path) // ENTRY_BYTES
        with mapped_view(file.path) as view:
            units = np.frombuffer(view, UNIT, min(count, len(view) // ENTRY_BYTES))
            units = units[(units["size_bytes"] > 0) & (units["size_bytes"] < INT_MAX)]
            places = places_of(units["physical_offset"], units["size_bytes"])
            del units
        # Units are in the order of the log; what follows the last one before `end` is after it.
        earlier = np.flatnonzero(places["physical_offset"] < end)
        found.append(places[earlier[-1] + 1 :] if len(earlier) else places)
        if len(earlier):
            break
    return np.concatenate(found)
