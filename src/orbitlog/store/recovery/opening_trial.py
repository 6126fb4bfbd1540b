"""Opening trial: the checks of `MessageStore.open` and the decisions of its recovery, without a change.

Everything that refuses a store at its opening is called here in the same order and with the same rules, so a store that
passes is opened, and one that does not is refused with the same sentence. It reads the log as a recovery does.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.store.dispatch.dispatcher import Dispatcher
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.property_crc_mode import infer_mode
from orbitlog.store.log.segments import open_log_segments
from orbitlog.store.recovery.store_recovery import (
    FoundStore,
    StoreParts,
    check_whole,
    decide,
    index_notice,
    read_checkpoint,
    read_recovery_note,
    read_state,
)
from orbitlog.store.store_notices import StoreNotice, notices_of
from orbitlog.storefiles.confined.store_links import refuse_links
from orbitlog.storefiles.disk import disk_errors
from orbitlog.storefiles.read_only_disk import ReadOnlyDisk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_contents import refuse_given_dledger, refuse_lost_log, refuse_unwritable, refuse_writing


def try_opening(
    root: Path, config: StoreConfig, *, read_log: bool = True, progress: Progress | None = None
) -> list[StoreNotice]:
    """Raise the error with which `MessageStore.open` would refuse the store; return the notices it would give.

    Nothing is created, written or locked for longer than the call. A process that dispatches is not asked to stop.
    Without `read_log` only names and sizes of files are checked: a log that ends early is not found.
    """
    disk = ReadOnlyDisk()
    paths = config.paths_of(root)
    refuse_links(paths)
    refuse_unwritable(paths)
    refuse_writing(root, disk, log_directories=paths.log_directories)
    refuse_given_dledger(paths, disk)
    refuse_lost_log(paths, disk)
    with ExitStack() as locks:
        locks.callback(disk.lock_file(root / tree.LOCK, tree.LOCK_CONTENT).release)
        for directory in paths.log_directories:
            locks.callback(disk.lock_directory(directory).release)
        with disk_errors(f"opening {root}"):
            return _load(root, config, disk, read_log, progress)


def _load(
    root: Path, config: StoreConfig, disk: ReadOnlyDisk, read_log: bool, progress: Progress | None
) -> list[StoreNotice]:
    geometry = config.geometry
    log = CommitLog(open_log_segments(disk, config.paths_of(root), geometry.segment_bytes, writable=False))
    queues = QueueSet(disk, root, geometry.queue_file_bytes, writable=False)
    index = IndexFiles(disk, root, geometry.index_layout, writable=False)
    with ExitStack() as opened:
        for part in (log.segments, queues, index):
            opened.callback(part.close)
            part.load()
        check_whole(log)
        if not read_log:
            return notices_of(disk, root)
        log.written_to = log.flushed_to = log.min_physical_offset
        parts = StoreParts(log, queues, index, Dispatcher(log, queues, index, config.rules))
        found = FoundStore(
            disk,
            root,
            config.rules,
            read_checkpoint(disk, root),
            read_state(disk, root),
            was_closed=disk.read_file(root / tree.ABORT) is None,
            note=read_recovery_note(disk, root),
        )
        decision = decide(parts, found, progress)
        log.written_to = decision.end.physical_offset
        notices = notices_of(disk, root) + (decision.plan.notices if decision.plan is not None else [])
        return notices + index_notice(index) + infer_mode(config.property_crc, log, queues)[1]
