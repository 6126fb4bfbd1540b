"""Log references: refuses a store whose queues, index, checkpoint or offsets refer to messages that the log lacks.

An empty or missing CommitLog beside files that refer to messages is a contradiction: a disk that is not mounted, a
segment that was renamed, a copy without its log. Deleting the queues would make the loss permanent, so such a store is
not opened. After a crash queues may be ahead of the log by pages that were never written back: that is consistent,
and `refuse_short_log` counts only evidence that a crash cannot produce.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orbitlog.errors import FormatError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint, decode_checkpoint
from orbitlog.formats.derived.index_layout import INDEX_HEADER, decode_header
from orbitlog.formats.derived.store_state import STATE_FILE, decode_state
from orbitlog.formats.records.message import RECORD_START
from orbitlog.formats.tables.config_files import choose_config
from orbitlog.formats.tables.offset_tables import CONSUMER_OFFSET, DELAY_OFFSET, LMQ_CONSUMER_OFFSET
from orbitlog.storefiles.disk import Disk, disk_errors
from orbitlog.storefiles.store_paths import StorePaths, where_else

# Size, magic and physical offset: the same place in every version so far, and a torn record has zeros there.
_RECORD_START = RECORD_START
_READ_BYTES = 64 * 1024
# A bit error can make one unit refer to any offset, but not two of them.
_ENOUGH_EVIDENCE = 2


def refuse_missing_log(paths: StorePaths, disk: Disk) -> None:
    """Raise `StoreLayoutError` if there is no segment at all, but other files refer to messages."""
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
