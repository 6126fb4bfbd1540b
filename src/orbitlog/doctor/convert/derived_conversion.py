"""Derived files of a converted store: timer log, and queues of which every message has expired.

Other queues, the index and the checkpoint are derived from the new log by a rebuild. A queue without a message left in
the log has only its last offset, which the rebuild cannot know: without it the next message would begin at 0 again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitlog.formats import names
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW, QueueEntry, encode_entry
from orbitlog.formats.derived.timer_log import TIMER_LOG_UNIT, TIMER_UNIT_BYTES
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.records.message import RECORD_BYTES_MIN
from orbitlog.jobs.split_derivation import UNIT, Units
from orbitlog.jobs.staging import TEMPORARY, put_bytes, whole_file
from orbitlog.kernels.arrays import np, npt
from orbitlog.storefiles.config_reading import known_topics
from orbitlog.storefiles.disk import Disk, PlainFile
from orbitlog.storefiles.mapped_view import copy_written, mapped_view, written_until
from orbitlog.storefiles.rocksdb.rocksdb_queues import LastUnit, queue_database, read_last_units
from orbitlog.storefiles.store_files import OffsetFile, StoreFiles, find_queues

Queue = tuple[str, int]
_PHYSICAL_OFFSET = TIMER_LOG_UNIT.position("physical_offset")
_I32, _I64 = struct.Struct(">i"), struct.Struct(">q")


def keep_expired_queues(
    disk: Disk,
    store: StoreFiles,
    out: Path,
    state: Path,
    *,
    derived: Collection[Queue],
    log_start: int,
    queue_file_bytes: int,
) -> int:
    """Keep the last offset of each queue whose messages have all expired; return the number of queues."""
    database = queue_database(store.root)
    if database is not None:
        last = {queue: unit for queue, unit in read_last_units(database).items() if queue not in derived}
        expired = {queue: unit for queue, unit in last.items() if unit.physical_offset < log_start}
        for queue, unit in expired.items():
            _write_last_file(disk, out, state, queue, last=unit, queue_file_bytes=queue_file_bytes)
        return len(expired)
    return _copy_last_files(disk, store, out, state, derived=derived, log_start=log_start)


def _copy_last_files(
    disk: Disk, store: StoreFiles, out: Path, state: Path, *, derived: Collection[Queue], log_start: int
) -> int:
    count = 0
    for (topic, queue_id), files in store.queues.items():
        if (topic, queue_id) in derived or not files:
            continue
        last = files[-1]
        if not _is_expired(last, log_start):
            continue  # of a deleted topic, or damaged: a rebuild decides what belongs into a queue
        target = out / tree.queue_directory(topic, queue_id) / last.path.name
        _copy(disk, last.path, target, state)
        count += 1
    return count


def _write_last_file(
    disk: Disk, out: Path, state: Path, queue: Queue, *, last: LastUnit, queue_file_bytes: int
) -> None:
    """Write a queue file that ends with the last unit; RocksDB has dropped the units, and with them their sizes."""
    position = last.queue_offset * ENTRY_BYTES
    base = position - position % queue_file_bytes
    fillers = PRE_BLANK_RAW * ((position - base) // ENTRY_BYTES)
    # Brokers look at the physical offset only, to see that the record has expired.
    unit = encode_entry(QueueEntry(last.physical_offset, RECORD_BYTES_MIN, 0))
    data = (fillers + unit).ljust(queue_file_bytes, b"\0")
    target = out / tree.queue_directory(*queue) / tree.offset_file_name(base)
    put_bytes(disk, target, data, state / TEMPORARY)


def drop_deleted_queues(disk: Disk, store: StoreFiles, out: Path, derived: Collection[Queue]) -> list[str]:
    """Remove derived queues that the source does not have, as their topics were deleted; return the topics.

    The log keeps the messages of a deleted topic. Of a store that was not closed, a queue may be missing because it was
    not dispatched yet: there only a topic without an entry in the topic table was deleted.
    """
    known = _queues_of(store)
    if not known:
        return []  # the source has lost all of its queues: a missing one proves nothing
    table = known_topics(out)
    topics = table.topics if table is not None else {}
    dropped = set()
    for topic, queue_id in derived:
        if (topic, queue_id) not in known and (store.abort is None or (topics and topic not in topics)):
            disk.remove_tree(out / tree.queue_directory(topic, queue_id))
            dropped.add(topic)
    for topic in dropped:
        directory = out / tree.CONSUMEQUEUE / topic
        if not any(directory.iterdir()):
            disk.remove_directory(directory)
    return sorted(dropped)


def _queues_of(store: StoreFiles) -> set[Queue]:
    database = queue_database(store.root)
    if database is not None:
        return set(read_last_units(database))
    return {queue for queue, files in store.queues.items() if files}


def _is_expired(file: OffsetFile, log_start: int) -> bool:
    """Return whether a queue file has units, and all of them refer to offsets before the log."""
    has_unit = False
    with mapped_view(file.path) as view:
        for position in range(0, len(view) - ENTRY_BYTES + 1, ENTRY_BYTES):
            (physical_offset,) = _I64.unpack_from(view, position)
            (size_bytes,) = _I32.unpack_from(view, position + 8)
            if size_bytes <= 0:
                break
            if physical_offset >= log_start:
                return False
            has_unit = True
    return has_unit


def keep_delivery_times(disk: Disk, store: StoreFiles, out: Path, state: Path) -> int:
    """Take the delivery times of delayed messages from the queues of the source; return the number of changed units.

    The log has only the level of a message. What a level means is a setting of the broker (`messageDelayLevel`), and it
    may have been changed since.
    """
    count = 0
    derived = find_queues(out / tree.CONSUMEQUEUE)
    for queue, files in store.queues.items():
        if queue[0] != names.SCHEDULE_TOPIC or not files:
            continue
        stored = [_units_of(file) for file in files]
        queue_offsets = np.concatenate([offsets for offsets, _ in stored])
        units = np.concatenate([units for _, units in stored])
        if not len(units):
            continue
        for file in derived.get(queue, ()):
            count += _take_times(disk, file, state, queue_offsets, units)
    return count


def _units_of(file: OffsetFile) -> tuple[npt.NDArray[np.int64], Units]:
    with mapped_view(file.path) as view:
        # The hole after the last unit may be a terabyte in a store of a stranger.
        end = min(len(view), written_until(file.path) + ENTRY_BYTES - 1)
        units = np.frombuffer(bytes(view[: end // ENTRY_BYTES * ENTRY_BYTES]), UNIT)
    return file.base // ENTRY_BYTES + np.arange(len(units)), units


def _take_times(disk: Disk, file: OffsetFile, state: Path, queue_offsets: npt.NDArray[np.int64], stored: Units) -> int:
    offsets, units = _units_of(file)
    units = units.copy()
    rows = np.minimum(np.searchsorted(queue_offsets, offsets), len(queue_offsets) - 1)
    source = stored[rows]
    is_same = (
        (queue_offsets[rows] == offsets) & (source["size_bytes"] == units["size_bytes"]) & (units["size_bytes"] > 0)
    )
    # A smaller value is not a time: brokers of 4.x store the hash of tags when they recover after a crash.
    changed = is_same & (source["tags_code"] > INT_MAX) & (source["tags_code"] != units["tags_code"])
    if changed.any():
        units["tags_code"][changed] = source["tags_code"][changed]
        modified_ms = int(file.path.stat().st_mtime * 1000)
        with whole_file(disk, file.path, state / TEMPORARY, modified_ms=modified_ms) as changed_file:
            changed_file.write(0, units.tobytes())
            changed_file.resize(file.size_bytes)
    return int(changed.sum())


def convert_timers(
    disk: Disk, store: StoreFiles, out: Path, state: Path, translate: Callable[[int], int | None]
) -> int:
    """Write timer log and wheel of the new store; return the number of units whose offsets were translated."""
    count = 0
    for file in store.timer_log:
        with _copied(disk, file.path, out / tree.TIMER_LOG / file.path.name, state) as (view, copy):
            for position in range(0, written_until(file.path) - TIMER_UNIT_BYTES + 1, TIMER_UNIT_BYTES):
                if _I32.unpack_from(view, position)[0] != TIMER_UNIT_BYTES:
                    break  # the end of the file, or of what was written
                (physical_offset,) = _I64.unpack_from(view, position + _PHYSICAL_OFFSET)
                moved = translate(physical_offset)
                if moved is not None:
                    copy.write(position + _PHYSICAL_OFFSET, _I64.pack(moved))
                    count += 1
    if store.timer_wheel is not None:
        _copy(disk, store.timer_wheel.path, out / tree.TIMER_WHEEL, state)
    return count


def _copy(disk: Disk, source: Path, target: Path, state: Path) -> None:
    with _copied(disk, source, target, state):
        pass


@contextmanager
def _copied(disk: Disk, source: Path, target: Path, state: Path) -> Iterator[tuple[memoryview, PlainFile]]:
    """Yield the bytes of a file, and the copy of it that becomes `target` when the block ends without an error.

    Holes stay holes: a store of a stranger may have a file that is nothing else.
    """
    modified_ms = int(source.stat().st_mtime * 1000)
    with (
        mapped_view(source) as view,
        whole_file(disk, target, state / TEMPORARY, modified_ms=modified_ms) as copy,
    ):
        copy_written(source, view, copy)
        yield view, copy
