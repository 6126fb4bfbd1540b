"""Marks of a store: the physical offsets up to which the log is written, flushed, confirmed and dispatched.

    dispatched_to <= confirmed_to <= written_to,  flushed_to <= written_to

`confirmed_to` is `flushed_to` with synchronous flush, else `written_to`. Readers and dispatch follow it: if a store
acknowledges only flushed messages, no reader sees one that a crash could remove. In the store of a replica group it is
also limited to the offset that the group has confirmed, so no reader sees a message that a failover could remove.
"""

from __future__ import annotations

from threading import Lock

from orbitlog.formats.derived.store_state import CONFIRMED
from orbitlog.formats.java import LONG_MAX
from orbitlog.storefiles.disk import MappedFile


class StoreMarks:
    """The lock under which marks move, and the file that publishes `confirmed_to` to other processes.

    `lock` is held during a dispatch step and while several marks are read together. Without it the state file could
    count the units of half a step, and no recovery would accept it.
    """

    def __init__(self, published: MappedFile) -> None:
        self._published = published
        self.lock = Lock()
        self.confirm_limit = LONG_MAX
        """Offset that a replica group has confirmed; without a group there is no limit."""

    def publish(self, confirmed_to: int) -> None:
        """Write the mark for processes that read the files of a running store; recovery does not use it."""
        self._published.write(0, CONFIRMED.struct.pack(confirmed_to))
