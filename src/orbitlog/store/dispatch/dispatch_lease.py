"""Dispatch lease: one owner of queues and index at a time, across processes, and a mark of its progress.

Three files, each with one writer at a time. The lock keeps two owners apart: a record lock, which the operating system
releases however its process dies. The lease names the holder of the lock and its epoch; only the holder writes it. The
marks are mapped: the broker writes which engine it wants, the owner its progress. Why a lock and not a heartbeat:
docs/adr/0005-dispatch-lease-is-a-lock.md.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from uuid import uuid4

from orbitlog.errors import FormatError, LeaseLost, StoreLocked
from orbitlog.formats.derived.dispatch_marks import (
    DISPATCH_WANTED,
    LEASE_FILE,
    LEASE_LOCK_FILE,
    MARKS_BYTES,
    MARKS_FILE,
    DispatchLease,
    DispatchMark,
    decode_lease,
    encode_lease,
    encode_mark,
    mark_position,
    newest_mark,
)
from orbitlog.store.log.segments import new_file
from orbitlog.storefiles.disk import Disk, FileLock, MappedFile

_LOCK_CONTENT = b"dispatch"
_INLINE_WANTED, _OUTSIDE_WANTED = 0, 1


class LeaseFiles:
    """Lease, lock and marks of one store, for the broker and for an external engine."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._lock: FileLock | None = None
        self._marks: MappedFile | None = None
        self._sequence = 0

    @property
    def exist(self) -> bool:
        """Whether dispatch of this store was ever handed over."""
        raw = self._disk.read_file(self._root / MARKS_FILE)
        return raw is not None and len(raw) == MARKS_BYTES

    def open(self, *, create: bool) -> None:
        """Map the marks; with `create`, which only the broker uses, create them if they are missing."""
        if self._marks is not None:
            return
        path = self._root / MARKS_FILE
        if self.exist:
            self._marks = self._disk.open_file(path, writable=True)
        elif not create:
            raise LeaseLost(f"{self._root} has no broker with external dispatch; start one with --dispatch spark")
        else:
            self._disk.remove_file(path)
            self._marks = new_file(self._disk, path, MARKS_BYTES)
        self._marks.allocate(0, MARKS_BYTES)
        found = self.newest_mark()
        self._sequence = found.sequence if found else 0

    def close(self) -> None:
        """Release the lock, if it is held, and unmap the marks."""
        self.unlock()
        if self._marks is not None:
            self._marks.close()
            self._marks = None

    # The lock

    @property
    def is_locked(self) -> bool:
        return self._lock is not None

    def try_lock(self) -> bool:
        """Take the lock; return False if a living process holds it."""
        if self._lock is None:
            try:
                self._lock = self._disk.lock_file(self._root / LEASE_LOCK_FILE, _LOCK_CONTENT)
            except StoreLocked:
                return False
        return True

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def is_orphaned(self) -> bool:
        """Whether no process holds the lock."""
        return self._disk.lock_holder(self._root / LEASE_LOCK_FILE) is None

    # The lease

    def read_lease(self) -> DispatchLease | None:
        raw = self._disk.read_file(self._root / LEASE_FILE)
        try:
            return decode_lease(raw) if raw else None
        except FormatError:
            return None

    def write_lease(self, lease: DispatchLease) -> None:
        assert self._lock is not None, "only the holder of the lock writes the lease"
        self._disk.replace_file(self._root / LEASE_FILE, encode_lease(lease))

    def take_lease(self, engine: str, dispatched_to: int, settings: dict[str, str]) -> DispatchLease:
        """Write the lease of a new owner, under the next epoch."""
        before = self.read_lease()
        lease = DispatchLease(
            engine=engine,
            epoch=max(before.epoch if before else 0, self._mark_epoch()) + 1,
            owner=uuid4().hex,
            process_id=os.getpid(),
            host=platform.node()[:100],
            dispatched_to=max(dispatched_to, 0),
            settings=settings,
        )
        self.write_lease(lease)
        return lease

    def _mark_epoch(self) -> int:
        mark = self.newest_mark()
        return mark.epoch if mark else 0

    # The marks

    @property
    def is_outside_wanted(self) -> bool:
        """Whether the broker wants an external engine to dispatch."""
        assert self._marks is not None
        (wanted,) = DISPATCH_WANTED.struct.unpack(self._marks.read(0, DISPATCH_WANTED.size_bytes))
        return bool(wanted == _OUTSIDE_WANTED)

    def want_outside(self, is_wanted: bool) -> None:
        assert self._marks is not None
        self._marks.write(0, DISPATCH_WANTED.struct.pack(_OUTSIDE_WANTED if is_wanted else _INLINE_WANTED))

    def newest_mark(self) -> DispatchMark | None:
        assert self._marks is not None
        return newest_mark(self._marks.read(0, MARKS_BYTES))

    def raw_marks(self) -> bytes:
        """Return the raw bytes of both marks: equal bytes mean no progress."""
        assert self._marks is not None
        return self._marks.read(0, MARKS_BYTES)

    def put_mark(self, mark: DispatchMark) -> None:
        """Write a mark with the next sequence number over the older of the two."""
        assert self._marks is not None
        assert mark.sequence == self._sequence + 1
        self._marks.write(mark_position(mark.sequence), encode_mark(mark))
        self._sequence = mark.sequence

    @property
    def next_sequence(self) -> int:
        return self._sequence + 1
