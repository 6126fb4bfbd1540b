"""Which task comes next, for workers of one machine that take one after the other as they get through with them.

A small file that all of them open says how many tasks were taken and by whom, and what finished ones came to. A worker
that begins anew, after one that died, is told what the dead one had taken.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_SUMS = struct.Struct(">qqq")  # tasks taken, bytes, messages
_TAKER = struct.Struct(">i")


class TaskClaims:
    """The tasks of one job, by number from 0 on; each is taken by one worker."""

    def __init__(self, path: str, count: int) -> None:
        self._path = path
        self._count = count

    @classmethod
    @contextmanager
    def lent(cls, count: int) -> Iterator[TaskClaims]:
        """Lend the claims of a new job; they are gone when the block ends."""
        with tempfile.NamedTemporaryFile(prefix="orbitlog-claims-") as file:
            file.write(bytes(_SUMS.size + count * _TAKER.size))
            file.flush()
            yield cls(file.name, count)

    def numbers_for(self, taker: int) -> Iterator[int]:
        """Go through the tasks that `taker` has taken before, and then take others until none is left."""
        with self._locked() as descriptor:
            raw = os.pread(descriptor, self._count * _TAKER.size, _SUMS.size)
        yield from (number for number, (found,) in enumerate(_TAKER.iter_unpack(raw)) if found == taker + 1)
        while (number := self._take(taker)) is not None:
            yield number

    def _take(self, taker: int) -> int | None:
        with self._locked() as descriptor:
            number, *sums = _read_sums(descriptor)
            if number == self._count:
                return None
            os.pwrite(descriptor, _TAKER.pack(taker + 1), _SUMS.size + number * _TAKER.size)
            os.pwrite(descriptor, _SUMS.pack(number + 1, *sums), 0)
        return number

    def add(self, scanned_bytes: int, messages: int) -> None:
        """Tell what a finished task came to."""
        with self._locked() as descriptor:
            number, bytes_so_far, messages_so_far = _read_sums(descriptor)
            os.pwrite(descriptor, _SUMS.pack(number, bytes_so_far + scanned_bytes, messages_so_far + messages), 0)

    def sums(self) -> tuple[int, int]:
        """Return bytes and messages of all finished tasks; of one that was done twice, twice."""
        with self._locked() as descriptor:
            _, scanned_bytes, messages = _read_sums(descriptor)
        return scanned_bytes, messages

    @contextmanager
    def _locked(self) -> Iterator[int]:
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def _read_sums(descriptor: int) -> tuple[int, ...]:
    return _SUMS.unpack(os.pread(descriptor, _SUMS.size, 0))
