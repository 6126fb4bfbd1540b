"""Log references: refuses a store whose queues, index, checkpoint or offsets refer to messages that the log lacks.

An empty or missing CommitLog beside files that refer to messages is a contradiction: a disk that is not mounted, a
segment that was renamed, a copy without its log. Deleting the queues would make the loss permanent, so such a store is
not opened. After a crash queues may be ahead of the log by pages that never reached the disk; that is no contradiction,
and `refuse_short_log` counts only evidence that a crash cannot produce.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.checkpoint import Checkpoint, decode_checkpoint
from orbitlog.formats.config_files import choose_config
from orbitlog.formats.index_layout import INDEX_HEADER, decode_header
from orbitlog.formats.message import MAGIC_V1, MAGIC_V2
from orbitlog.formats.message_scan import MAGIC_BLANK
from orbitlog.formats.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.formats.store_state import STATE_FILE, StoreState, decode_state
from orbitlog.store.commitlog import CommitLog
from orbitlog.store.disk import Disk, disk_errors
from orbitlog.store.index_files import IndexFiles
from orbitlog.store.queue_set import QueueSet
from orbitlog.store.store_paths import StorePaths, where_else

# Size, magic and physical offset: the same place in every version so far, and a torn record has zeros there.
_RECORD_START = struct.Struct(">iI20xq")
_READ_BYTES = 64 * 1024
# A bit error can make one unit refer to any offset, but not two of them.
_ENOUGH_EVIDENCE = 2


def refuse_missing_log(paths: StorePaths, disk: Disk) -> None:
    """Raise `StoreLayoutError` if there is no segment at all, although other files refer to messages."""
    root = paths.root
    with disk_errors(f"listing {root}"):
        for directory in paths.log_directories:
            if any(_is_segment(entry.name) and entry.size_bytes for entry in disk.list_directory(directory)):
                return
        references = list(_references(disk, root))
    if references:
        raise StoreLayoutError(
            f"store not opened: {paths.shown} has no CommitLog segment, but {_listed(references)} below {root} refer to"
            f" messages; {where_else(paths)} (to begin with an empty store, give an empty directory)"
        )


def _is_segment(name: str) -> bool:
    return tree.parse_offset_file_name(name) is not None


def _listed(references: list[str]) -> str:
    return references[0] if len(references) == 1 else f"{', '.join(references[:-1])} and {references[-1]}"


def _references(disk: Disk, root: Path) -> Iterator[str]:
    """Yield the names of files that refer to messages, one for each kind."""
    queue = next(_queues_with_units(disk, root / tree.CONSUMEQUEUE), None)
    if queue is not None:
        yield str(queue.relative_to(root))
    for entry in disk.list_directory(root / tree.INDEX):
        if entry.size_bytes >= INDEX_HEADER.size_bytes and _has_keys(disk, root / tree.INDEX / entry.name):
            yield f"{tree.INDEX}/{entry.name}"
            break
    if _checkpoint_refers(_decoded_checkpoint(disk, root)):
        yield tree.CHECKPOINT
    if _state_refers(disk, root):
        yield STATE_FILE
    yield from _offsets(disk, root / tree.CONFIG)
    if any(entry.size_bytes for entry in disk.list_directory(root / tree.TIMER_LOG)):
        yield tree.TIMER_LOG


def _queues_with_units(disk: Disk, directory: Path) -> Iterator[Path]:
    for topic in disk.list_directory(directory):
        for queue in disk.list_directory(directory / topic.name) if topic.is_directory else ():
            place = directory / topic.name / queue.name
            for file in disk.list_directory(place) if queue.is_directory else ():
                if _is_segment(file.name) and file.size_bytes and _has_bytes(disk, place / file.name):
                    yield place
                    break


def _has_bytes(disk: Disk, path: Path) -> bool:
    mapped = disk.open_file(path, writable=False)
    try:
        end = mapped.data_end()
        return any(any(mapped.read(start, _READ_BYTES)) for start in range(0, end, _READ_BYTES))
    finally:
        mapped.close()


def _has_keys(disk: Disk, path: Path) -> bool:
    if tree.parse_index_file_name(path.name) is None:
        return False
    mapped = disk.open_file(path, writable=False)
    try:
        header = decode_header(mapped.read(0, INDEX_HEADER.size_bytes))
    except FormatError:
        return False
    finally:
        mapped.close()
    return header.end_physical_offset > 0 or header.end_timestamp_ms > 0


def _decoded_checkpoint(disk: Disk, root: Path) -> Checkpoint:
    try:
        return decode_checkpoint(disk.read_file(root / tree.CHECKPOINT) or b"")
    except FormatError:
        return Checkpoint()


def _checkpoint_refers(checkpoint: Checkpoint) -> bool:
    return checkpoint.physic_msg_timestamp_ms > 0 or checkpoint.logics_msg_timestamp_ms > 0


def _state_refers(disk: Disk, root: Path) -> bool:
    try:
        state = decode_state(disk.read_file(root / STATE_FILE) or b"")
    except FormatError:
        return False
    return state.dispatched_to > 0 or state.unit_count > 0


def _offsets(disk: Disk, config: Path) -> Iterator[str]:
    """Yield the offset tables that have an offset above 0."""
    for file in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, DELAY_OFFSET):
        main, backup = disk.read_file(config / file.name), disk.read_file(config / (file.name + tree.BACKUP_SUFFIX))
        try:
            chosen = choose_config(main, backup, file.decode)
        except FormatError:
            continue  # the broker reports a table that it cannot read
        offsets = {} if chosen is None else chosen.value.offsets
        if any(number > 0 for value in offsets.values() for number in _numbers(value)):
            yield f"{tree.CONFIG}/{file.name}"


def _numbers(value: int | Mapping[int, int]) -> Iterable[int]:
    return (value,) if isinstance(value, int) else value.values()


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """What recovery knows when it has found the end of the log, before it changes anything."""

    log: CommitLog
    queues: QueueSet
    index: IndexFiles
    end: int
    checkpoint: Checkpoint
    state: StoreState | None
    was_closed: bool


def refuse_short_log(opened: OpenedLog) -> None:
    """Raise `StoreLayoutError` if the log ends before messages that it must have had.

    Three cases: files are missing after the last segment; the log has no record at all, although records were flushed
    or the store was closed cleanly; or queues go on at a record of an unknown kind, which a newer broker wrote.
    """
    log, end = opened.log, opened.end
    files_end = log.segments.end
    if (evidence := _evidence(opened, files_end)) is not None:
        raise StoreLayoutError(
            f"store not opened: the last segment of {log.segments.directory} ends at physical offset {files_end}, but"
            f" {evidence}; restore the segments after it, or run `orbitlog doctor check`"
        )
    if end == log.min_physical_offset and (evidence := _evidence(opened, end)) is not None:
        raise StoreLayoutError(
            f"store not opened: {log.segments.directory} holds no message from physical offset {end} on, but"
            f" {evidence}; restore the log, or run `orbitlog doctor check`"
        )
    if _has_unknown_record(log, end) and (evidence := _evidence(opened, end)) is not None:
        raise StoreLayoutError(
            f"store not opened: the record at physical offset {end} of {log.segments.directory} has an unknown magic,"
            f" and {evidence}; open the store with the broker version that wrote it, or run `orbitlog doctor check`"
        )


def _evidence(opened: OpenedLog, end: int) -> str | None:
    """Return a clause that names what refers to messages at or after `end`, or None if there is too little evidence."""
    found: list[str] = []
    weight = 0
    state, checkpoint = opened.state, opened.checkpoint
    if state is not None and state.dispatched_to > end:
        found.append(f"{STATE_FILE} records messages up to {state.dispatched_to}")
        weight += _ENOUGH_EVIDENCE  # it has a checksum
    is_flushed = checkpoint.logics_physical_offset >= end and checkpoint.logics_physical_offset > 0
    if is_flushed or (end == 0 and checkpoint.physic_msg_timestamp_ms > 0):
        found.append(f"{tree.CHECKPOINT} records a flushed message after it")
        weight += _ENOUGH_EVIDENCE if end == 0 else 1
    # After a crash a young log may be empty while queue pages are durable; but a segment's name is durable before its
    # first record, so a unit after the last segment always means that a file is missing.
    if opened.was_closed or end >= opened.log.segments.end:
        units = _units_from(opened.queues, end)
        if units:
            found.append(f"{units[0]} refers to messages after it")
            weight += len(units)
        if any(file.header.end_physical_offset >= end and file.header.end_timestamp_ms for file in opened.index):
            found.append("the index refers to messages after it")
            weight += 1
    return " and ".join(found) if weight >= _ENOUGH_EVIDENCE else None


def _units_from(queues: QueueSet, physical_offset: int) -> list[str]:
    """Return the directory of a queue for each of its last units that refers to that offset or a later one."""
    found: list[str] = []
    for queue in queues:
        for entry in queue.last_entries(_ENOUGH_EVIDENCE):
            if not entry.is_pre_blank and entry.physical_offset >= physical_offset:
                found.append(str(queue.segments.directory))
        queues.used(queue)
        if len(found) >= _ENOUGH_EVIDENCE:
            break
    return found


def _has_unknown_record(log: CommitLog, end: int) -> bool:
    """Return whether bytes at the end of the log look like a record with a magic that is not known here."""
    base = log.segments.base_of(end)
    if not log.segments.has(base):
        return False
    raw = log.segments.file(base).read(end - base, _RECORD_START.size)
    if len(raw) < _RECORD_START.size:
        return False
    size_bytes, magic, physical_offset = _RECORD_START.unpack(raw)
    fits_in = _RECORD_START.size < size_bytes <= base + log.segments.file_bytes - end
    return fits_in and physical_offset == end and magic not in (0, MAGIC_BLANK, MAGIC_V1, MAGIC_V2)
