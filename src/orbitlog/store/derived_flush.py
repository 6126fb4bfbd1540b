"""Derived flush: syncs queues and index, then records in checkpoint and state file what they contain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Lock

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import Checkpoint, encode_checkpoint
from orbitlog.formats.derived.store_state import (
    KEYS_UNKNOWN,
    STATE_FILE,
    LastRecord,
    StoreState,
    encode_state,
)
from orbitlog.store.availability import Availability
from orbitlog.store.store_marks import StoreMarks
from orbitlog.store.store_opening import OpenedStore


class DerivedFlush:
    """Flushes the derived files of one store; `derived_to` is the physical offset up to which they are durable.

    `files_lock` is held while queues and index are synced and while their files are removed: a file may not be
    unlinked and unmapped in the middle of its sync.
    """

    def __init__(
        self,
        opened: OpenedStore,
        marks: StoreMarks,
        availability: Availability,
        flush_log: Callable[[], int],
    ) -> None:
        self._disk = opened.disk
        self._root = opened.root
        self._compat = opened.config.rules.compat
        self._parts = opened.parts
        self._checkpoint = opened.checkpoint
        self._dispatch = opened.dispatch
        self._marks = marks
        self._availability = availability
        self._flush_log = flush_log
        self.derived_to = 0
        self.files_lock = Lock()

    def flush(self) -> None:
        """Sync queues and index, and write checkpoint and state file."""
        with self.files_lock:
            self.flush_locked()

    def flush_locked(self) -> None:
        """Do what `flush` does, for a caller that holds `files_lock`.

        The order matters. Marks are read before the first sync: units dispatched in between may not be durable after
        it. The log is synced before queues and index: they may not point past its end. Checkpoint and state file come
        last: they state that everything before them is durable.
        """
        with self._marks.lock:
            checkpoint, state = self._current()
        state = replace(state, last_record=self._last_record(checkpoint, state.dispatched_to))
        self._flush_log()
        with self._availability.failing_for_good():
            self._parts.queues.sync()
            self._parts.index.sync()
        self.derived_to = state.dispatched_to
        self._checkpoint = checkpoint
        self._disk.replace_file(self._root / tree.CHECKPOINT, encode_checkpoint(checkpoint, self._compat))
        self._disk.replace_file(self._root / STATE_FILE, encode_state(state))

    def _last_record(self, checkpoint: Checkpoint, dispatched_to: int) -> LastRecord | None:
        """Return offset and checksum of the last dispatched record; None if it is not known, or has expired."""
        physical_offset = checkpoint.logics_physical_offset
        record = self._parts.log.read_record(physical_offset)
        # 0 is also the offset in a checkpoint of a version that records none.
        if record is None or (physical_offset == 0 and len(record) != dispatched_to):
            return None
        return LastRecord.of(physical_offset, record)

    def _current(self) -> tuple[Checkpoint, StoreState]:
        """Return checkpoint and state as of now."""
        queues, index, dispatcher = self._parts.queues, self._parts.index, self._parts.dispatcher
        last_ms = dispatcher.last_store_timestamp_ms or self._checkpoint.logics_msg_timestamp_ms
        checkpoint = Checkpoint(
            physic_msg_timestamp_ms=last_ms,
            logics_msg_timestamp_ms=last_ms,
            index_msg_timestamp_ms=index.complete_timestamp_ms,
            logics_physical_offset=dispatcher.last_physical_offset or self._checkpoint.logics_physical_offset,
        )
        key_count = index.key_count if self._dispatch.knows_index else KEYS_UNKNOWN
        state = StoreState(dispatcher.dispatched_to, queues.unit_count, len(queues), key_count, last_ms, last_ms)
        return checkpoint, state
