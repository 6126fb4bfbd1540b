"""Store opening: locks a store, recovers it, and provides its open files.

Order: the root's lock, the locks of the CommitLog directories, the dispatch lease, then recovery. Nothing is changed
before all three are held.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint
from orbitlog.formats.derived.store_state import (
    CONFIRMED_FILE,
    EPOCHS_FILE,
    GROUP_DIRECTORY,
    KEYS_UNKNOWN,
    REPLICA_FILE,
    STATE_FILE,
    RecoveryNote,
    StoreState,
    encode_state,
)
from orbitlog.formats.java import LONG_MAX
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.store.dispatch.broker_dispatch import BrokerDispatch
from orbitlog.store.dispatch.dispatcher import Dispatcher
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.log.confirmed_offset import open_confirmed, read_confirmed
from orbitlog.store.log.property_crc_mode import infer_mode
from orbitlog.store.log.segments import open_log_segments
from orbitlog.store.recovery.store_recovery import (
    FoundStore,
    RecoverySteps,
    StoreParts,
    read_checkpoint,
    read_recovery_note,
    read_state,
    recover,
    remove_recovery_note,
    write_recovery_note,
)
from orbitlog.store.store_notices import StoreNotice, notices_of
from orbitlog.storefiles.confined.store_links import refuse_links
from orbitlog.storefiles.disk import Disk, MappedFile
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_contents import (
    Content,
    refuse_given_dledger,
    refuse_lost_log,
    refuse_unwritable,
    refuse_writing,
)


def lock_store(root: Path, config: StoreConfig, disk: Disk) -> ExitStack:
    """Create the store's directories if they do not exist, and lock them; return the locks.

    Raise `StoreLocked` if another process has the store open, `StoreLayoutError` if it may not be written to.
    """
    paths = config.paths_of(root)
    refuse_links(paths)
    refuse_unwritable(paths)
    accepted = frozenset((Content.CONTROLLER_REPLICA,)) if config.is_controlled else frozenset[Content]()
    refuse_writing(root, disk, log_directories=paths.log_directories, except_for=accepted)
    refuse_given_dledger(paths, disk)
    refuse_lost_log(paths, disk)
    if not config.is_group_member and disk.read_file(root / EPOCHS_FILE) is not None:
        raise StoreLayoutError(
            f"{root} is the store of a member of a replica group: messages of a broker outside of the group would be"
            f" taken for copies; set replicaCoordinator, or remove {root / GROUP_DIRECTORY} to leave the group for good"
        )
    disk.make_directory(root)
    with ExitStack() as locks:
        locks.callback(disk.lock_file(root / tree.LOCK, tree.LOCK_CONTENT).release)
        # The root's lock does not keep out a broker with another root and the same CommitLog directory.
        for directory in paths.log_directories:
            disk.make_directory(directory)
            locks.callback(disk.lock_directory(directory).release)
        return locks.pop_all()


class OpenedStore:
    """The files of one store that is locked for writing; valid after `recover`."""

    def __init__(self, root: Path, config: StoreConfig, disk: Disk, locks: ExitStack, dispatch: BrokerDispatch) -> None:
        self.root = root
        self.config = config
        self.disk = disk
        self.locks = locks
        self.dispatch = dispatch
        geometry = config.geometry
        allocate_bytes = min(config.segment_allocate_bytes, geometry.segment_bytes)
        segments = open_log_segments(disk, config.paths_of(root), geometry.segment_bytes, allocate_bytes=allocate_bytes)
        log, queues = CommitLog(segments), QueueSet(disk, root, geometry.queue_file_bytes)
        index = IndexFiles(disk, root, geometry.index_layout)
        self.parts = StoreParts(log, queues, index, Dispatcher(log, queues, index, config.rules))
        self.checkpoint = Checkpoint()
        self.confirmed: MappedFile | None = None
        self.notices: list[StoreNotice] = []
        self.has_property_crc = False
        # Removed when recovery begins, not before: a store that is refused stays as it is.
        self._empty_files: list[Path] = []

    def recover(self, progress: Progress | None) -> None:
        """Load the files and make them consistent with the log."""
        disk, root, parts = self.disk, self.root, self.parts
        log = parts.log
        self.dispatch.claim()
        log.segments.load(self._empty_files)
        log.written_to = log.flushed_to = parts.dispatcher.dispatched_to = log.min_physical_offset
        parts.queues.load(self._empty_files)
        parts.index.load(self._empty_files)
        self.checkpoint = read_checkpoint(disk, root)
        state = read_state(disk, root)
        self.notices = notices_of(disk, root)
        found = FoundStore(
            disk,
            root,
            self.config.rules,
            self.checkpoint,
            state,
            was_closed=disk.read_file(root / tree.ABORT) is None,
            note=read_recovery_note(disk, root),
            # A slave is strict with its last records: it can fetch them from its master. A master cannot.
            is_foreign=not self.config.is_replica and disk.read_file(root / REPLICA_FILE) is not None,
            dispatch_limit=self._dispatch_limit(state),
        )
        # Anything but a file under this name raises here, before recovery changes the store.
        read_confirmed(disk, root / CONFIRMED_FILE)
        self.notices += recover(parts, found, RecoverySteps(self._begin_recovery, self._distrust_keys, progress))
        self.confirmed = open_confirmed(disk, root / CONFIRMED_FILE)
        self.has_property_crc, notices = infer_mode(self.config.property_crc, log, parts.queues)
        self.notices += notices

    def _dispatch_limit(self, state: StoreState | None) -> int:
        """Return the offset that the replica group has confirmed, as this member knows; no limit without a group.

        Both marks were confirmed when they were written. After a power cut either one may be the older.
        """
        if self.disk.read_file(self.root / EPOCHS_FILE) is None:
            return LONG_MAX  # also a store that becomes the first of a group
        published = read_confirmed(self.disk, self.root / CONFIRMED_FILE)
        return max(published, state.dispatched_to if state is not None else 0)

    def end_recovery(self) -> None:
        """Remove the notes for recovery; call it when the state file on disk is valid."""
        remove_recovery_note(self.disk, self.root)
        if not self.config.is_replica:
            self.disk.remove_file(self.root / REPLICA_FILE)

    def _begin_recovery(self, note: RecoveryNote | None) -> None:
        """Create the abort file before anything changes: a crash while recovering must not look like a clean close.

        The note is written first: after such a crash the next recovery reads it instead of the files, which have
        changed by then.
        """
        if note is not None:
            write_recovery_note(self.disk, self.root, note)
        if self.config.is_replica:
            self.disk.replace_file(self.root / REPLICA_FILE, b"")
        process_id = os.getpid() if self.config.rules.compat.abort_holds_process_id else None
        self.disk.replace_file(self.root / tree.ABORT, tree.encode_abort(process_id))
        for path in self._empty_files:
            self.disk.remove_file(path)
        self._empty_files.clear()

    def _distrust_keys(self, state: StoreState) -> None:
        """Let the state file cover queues only, until the next flush of queues and index."""
        encoded = encode_state(replace(state, key_count=KEYS_UNKNOWN))
        self.disk.replace_file(self.root / STATE_FILE, encoded)

    def mark_clean(self) -> None:
        """Remove the abort file: the last step of a clean close."""
        self.disk.remove_file(self.root / tree.ABORT)
        self.disk.remove_file(self.root / REPLICA_FILE)
        self.disk.sync_directory(self.root)

    def release(self) -> None:
        """Close all files, then release the locks: another process may open the store from here on."""
        self.dispatch.release()
        if self.confirmed is not None:
            self.confirmed.close()
        self.parts.log.segments.close()
        self.parts.queues.close()
        self.parts.index.close()
        self.locks.close()
