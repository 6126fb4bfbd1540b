"""Locks of a local table: one compaction at a time, and none of plain Parquet files beside an export.

A lock belongs to an open file, so a killed process leaves none. Tables on object stores have no locks.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitlog.errors import OrbitlogError
from orbitlog.pipeline.export.export_plan import STATE_DIRECTORY
from orbitlog.pipeline.runtime.location_files import LocationFiles
from orbitlog.settings.atomic_file import open_for_append

WRITER_LOCK, COMPACTION_LOCK = "writer.lock", "compaction.lock"
_WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class TableLocked(OrbitlogError):
    """Another process writes to the table."""

    retriable = True


@contextmanager
def table_lock(target: Path | str, name: str, *, is_required: bool = True) -> Iterator[None]:
    """Hold a lock of a table while the block runs; raise `TableLocked` if another process holds it.

    Unless it `is_required`, do without it on a file system that has no locks.
    """
    files = LocationFiles(target)
    if not files.is_local:
        yield
        return
    files.filesystem.create_dir(files.path(STATE_DIRECTORY), recursive=True)
    path = Path(files.path(f"{STATE_DIRECTORY}/{name}"))
    descriptor = open_for_append(path)
    try:
        _lock(descriptor, str(target), name, is_required=is_required)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, target: str, name: str, *, is_required: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        writer = "another compaction" if name == COMPACTION_LOCK else "an export or a compaction"
        raise TableLocked(f"{writer} is writing to {target}; wait until it has ended") from None
    except OSError as error:
        if is_required or error.errno not in _WITHOUT_LOCKS:
            raise TableLocked(f"could not lock {target}: {error}") from error
