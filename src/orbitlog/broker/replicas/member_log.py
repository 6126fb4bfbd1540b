"""Member log: the log of a group member in the store that its broker has open, and the files of the member."""

from __future__ import annotations

import logging

from orbitlog.errors import StoreError
from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.group.member_files import MemberFiles
from orbitlog.store.message_store import MessageStore

log = logging.getLogger(__name__)


class StoreLog:
    """The log of one member. `store` is replaced when the broker's role changes; the bytes are the same."""

    def __init__(self, store: MessageStore, files: MemberFiles) -> None:
        self.store = store
        self.files = files

    @property
    def start(self) -> int:
        return self.store.min_physical_offset

    @property
    def end(self) -> int:
        return self.store.written_to

    @property
    def flushed_to(self) -> int:
        return self.store.flushed_to

    @property
    def segment_bytes(self) -> int:
        return self.store.segment_bytes

    def read(self, physical_offset: int, size_bytes: int) -> bytes:
        """Return bytes of one segment; raise `StoreError` if they were deleted."""
        data = self.store.read_log(physical_offset, size_bytes)
        if len(data) != size_bytes:
            raise StoreError(f"the log has {len(data)} of {size_bytes} bytes at {physical_offset}")
        return data

    def append(self, physical_offset: int, body: bytes) -> None:
        """Append bytes of the master."""
        self.store.append_replicated(physical_offset, body)

    def keep_tail(self, last_epoch: int, physical_offset: int, end: int) -> None:
        """Copy a range to a file before it is cut; an incomplete last record is not part of the log."""
        end = min(end, self.store.written_to)
        if physical_offset >= end:
            return
        tail = self.files.keep_tail(last_epoch, physical_offset, end, self.store.read_log)
        count = self.files.count_messages(tail)
        log.warning(
            "gave up %d messages (%d bytes from offset %d, epoch %d) that the elected master does not have; kept in %s",
            count,
            end - physical_offset,
            physical_offset,
            last_epoch,
            tail.path,
        )

    def cut(self, physical_offset: int) -> None:
        """End the log at an offset, durably."""
        self.store.cut_log(physical_offset)

    def flush(self) -> None:
        """Flush the log to its end."""
        self.store.flush_log()

    def settle(self) -> int:
        """Cut an incomplete record at the end, flush, and return the end."""
        self.store.cut_log(self.store.written_to)
        return self.store.flush_log()

    def save_epochs(self, entries: tuple[EpochEntry, ...]) -> None:
        """Replace the epoch file, durably."""
        self.files.save_epochs(entries)

    def note_boot(self) -> None:
        """Record that a possible loss of bytes is dealt with."""
        self.files.note_boot()
