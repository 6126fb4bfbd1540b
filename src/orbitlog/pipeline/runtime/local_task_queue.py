"""Task queue for the workers of one machine: each worker takes the next task when it has finished one.

The queue is a small locked file that all workers open. It records the number of tasks taken, the worker that took
each, and the progress of finished tasks. A worker that replaces a dead one first repeats the tasks of its predecessor.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_HEADER = struct.Struct(">qqq")  # tasks taken, bytes scanned, messages
_WORKER = struct.Struct(">i")  # 0: not taken, else the worker's number plus 1


class LocalTaskQueue:
    """The tasks of one job, numbered from 0; each is taken by one worker."""

    def __init__(self, path: str, count: int) -> None:
        self._path = path
        self._count = count

    @classmethod
    @contextmanager
    def create(cls, count: int) -> Iterator[LocalTaskQueue]:
        """Yield the queue of a new job; its file is deleted when the block ends."""
        with tempfile.NamedTemporaryFile(prefix="orbitlog-tasks-") as file:
            file.write(bytes(_HEADER.size + count * _WORKER.size))
            file.flush()
            yield cls(file.name, count)

    def take_for(self, worker: int) -> Iterator[int]:
        """Yield the tasks that `worker` took earlier, then take others until none is left.

        Spark restarts a dead worker's partition under the same number. Its reports died with it, so its tasks are
        repeated; no other worker would run them.
        """
        with self._locked() as descriptor:
            raw = os.pread(descriptor, self._count * _WORKER.size, _HEADER.size)
        yield from (number for number, (taken_by,) in enumerate(_WORKER.iter_unpack(raw)) if taken_by == worker + 1)
        while (number := self._take(worker)) is not None:
            yield number

    def _take(self, worker: int) -> int | None:
        with self._locked() as descriptor:
            number, *progress = _read_header(descriptor)
            if number == self._count:
                return None
            # The worker's entry before the counter: a worker killed between the two writes has taken nothing, and the
            # next one overwrites the entry. In the other order the task would be lost.
            os.pwrite(descriptor, _WORKER.pack(worker + 1), _HEADER.size + number * _WORKER.size)
            os.pwrite(descriptor, _HEADER.pack(number + 1, *progress), 0)
        return number

    def add_progress(self, scanned_bytes: int, messages: int) -> None:
        """Add the counts of a finished task."""
        with self._locked() as descriptor:
            number, bytes_so_far, messages_so_far = _read_header(descriptor)
            os.pwrite(descriptor, _HEADER.pack(number, bytes_so_far + scanned_bytes, messages_so_far + messages), 0)

    def progress(self) -> tuple[int, int]:
        """Return bytes and messages of all finished tasks; a repeated task counts twice."""
        with self._locked() as descriptor:
            _, scanned_bytes, messages = _read_header(descriptor)
        return scanned_bytes, messages

    @contextmanager
    def _locked(self) -> Iterator[int]:
        # A descriptor per call: flock belongs to the open file, and closing it releases the lock, even after a kill.
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _read_header(descriptor: int) -> tuple[int, ...]:
    return _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
