"""A file's bytes for reading, mapped and not copied.

The view is released and the map closed when the block ends, whatever happened in it: nothing of the view may be
kept. A mapped file must not be truncated by another process meanwhile; brokers delete segments, they never do that.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.errors import StoreLayoutError

if TYPE_CHECKING:
    from orbitlog.storefiles.disk import PlainFile

_COPY_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES_MIN = 256
_CHUNK_BYTES_MAX = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES_MAX)


@contextmanager
def mapped_view(path: Path) -> Iterator[memoryview]:
    """Map a regular file read-only; an empty file, which cannot be mapped, gives an empty view."""
    # A FIFO would block in open for ever, so look before opening.
    if not stat.S_ISREG(path.stat().st_mode):
        raise StoreLayoutError(f"{path} is not a regular file; give a file of the store")
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ) as mapping, memoryview(mapping) as view:
            yield view


def written_until(path: Path) -> int:
    """Return a position past which the file is one hole: zeros without blocks.

    Segments are mostly such a hole, and reading it would cost a second a gigabyte.
    """
    with path.open("rb") as file:
        return end_of_data(file.fileno(), os.fstat(file.fileno()).st_size)


def copy_written(source: Path, view: memoryview, copy: PlainFile) -> None:
    """Write the bytes of a file, mapped as `view`, to a new one; a hole at its end stays a hole."""
    for start in range(0, min(written_until(source), len(view)), _COPY_BYTES):
        copy.write(start, view[start : start + _COPY_BYTES])
    copy.resize(len(view))


def end_of_data(descriptor: int, size_bytes: int) -> int:
    """Return the end of the last data of an open file, according to its file system."""
    if not hasattr(os, "SEEK_DATA"):
        return size_bytes
    end = 0
    try:
        while end < size_bytes:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        # ENXIO: no data after `end`. Any other error: this file system does not support it.
        return end if error.errno == errno.ENXIO else size_bytes
    return end


def first_written(view: memoryview, start: int, end: int | None = None) -> int | None:
    """Return the position of the first byte from `start` to `end` that is not zero, or None."""
    position, size_bytes = start, _CHUNK_BYTES_MIN
    end = len(view) if end is None else min(end, len(view))
    while position < end:
        chunk = bytes(view[position : min(position + size_bytes, end)])
        if chunk != _ZEROS[: len(chunk)]:
            return position + len(chunk) - len(chunk.lstrip(b"\0"))
        position += len(chunk)
        # Growing steps: the cost is that of the distance, be it ten bytes or a gigabyte.
        size_bytes = min(4 * size_bytes, _CHUNK_BYTES_MAX)
    return None


def end_of_written(view: memoryview, start: int, end: int | None = None) -> int:
    """Return the position after the last byte from `start` to `end` that is not zero; `start` if all are."""
    end = len(view) if end is None else min(end, len(view))
    while end > start:
        chunk = bytes(view[max(start, end - _CHUNK_BYTES_MAX) : end])
        if chunk != _ZEROS[: len(chunk)]:
            return end - len(chunk) + len(chunk.rstrip(b"\0"))
        end -= len(chunk)
    return start


def holds_data(path: Path) -> bool:
    """Return whether any byte of a file is not zero."""
    end = written_until(path)
    with mapped_view(path) as view:
        return first_written(view, 0, end) is not None
