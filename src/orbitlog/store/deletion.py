"""Deleting what retention has decided to delete, a bounded step at a time.

The log goes first, then what points into it. After a crash in between queues and index point at records that are gone,
which every reader is prepared for and the next step mends; the other way round there would be messages in the log
that no queue knows. Nothing goes whose units are not on the disk: a queue whose messages have all expired must still
know how many it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from orbitlog.errors import StoreError
from orbitlog.store.commitlog import CommitLog
from orbitlog.store.disk import Disk, DiskUsage, disk_errors
from orbitlog.store.index_files import IndexFiles
from orbitlog.store.queue_set import QueueSet
from orbitlog.store.retention import (
    DoomedSegment,
    Moment,
    RetentionPlan,
    RetentionPolicy,
    SegmentFile,
    decide,
    refusal,
)

_RECHECK_MS = 1_000


@dataclass(frozen=True, slots=True)
class Deleted:
    """What one step removed; every segment says why, and files of queues and index followed the log."""

    segments: tuple[DoomedSegment, ...] = ()
    queue_file_count: int = 0
    index_file_count: int = 0

    def __bool__(self) -> bool:
        return bool(self.segments or self.queue_file_count or self.index_file_count)


class Retention:
    """Keeps one store within its time and its disk."""

    def __init__(
        self, disk: Disk, log: CommitLog, queues: QueueSet, index: IndexFiles, policy: RetentionPolicy
    ) -> None:
        self._disk = disk
        self._log = log
        self._queues = queues
        self._index = index
        self._policy = policy
        self._followed_to = -1
        self._checked_ms = 0
        self.refusal = ""
        """Why no message can be taken, as far as is known; empty where they can."""

    def delete_once(self, now_ms: int, derived_to: int) -> Deleted:
        """Delete what the policy says, of what is derived up to `derived_to` and on the disk."""
        plan = self._plan(now_ms, derived_to)
        self._note(plan.refusal, now_ms)
        self._log.segments.drop_before(plan.end)
        start = self._log.min_physical_offset
        queue_files = index_files = 0
        if start != self._followed_to:  # also in the first step after opening: a crash may have come between
            queue_files = self._queues.follow_log_start(start)
            index_files = self._index.drop_before(start)
            self._followed_to = start
        if self.refusal and plan.doomed:
            self._note(refusal(self._usage(), self._policy), now_ms)
        return Deleted(plan.doomed, queue_files, index_files)

    def recheck(self, now_ms: int) -> str:
        """Return why no message can be taken, asking the disk again once a second."""
        if self.refusal and not 0 <= now_ms - self._checked_ms < _RECHECK_MS:
            try:
                self._note(refusal(self._usage(), self._policy), now_ms)
            except StoreError as error:
                self._note(str(error), now_ms)
        return self.refusal

    def _note(self, reason: str, now_ms: int) -> None:
        self.refusal, self._checked_ms = reason, now_ms

    def _plan(self, now_ms: int, derived_to: int) -> RetentionPlan:
        local_hour = datetime.fromtimestamp(now_ms / 1000).hour
        moment = Moment(now_ms, local_hour, self._usage())
        # Something that is on the disk stays: an empty log would begin at 0 again after a crash, and its queues, too.
        removable_to = min(derived_to, self._log.segments.base_of(max(self._log.flushed_to - 1, 0)))
        return decide(self._files(), moment, self._policy, removable_to=removable_to)

    def _files(self) -> Iterator[SegmentFile]:
        segments = self._log.segments
        for base in segments.bases:
            yield SegmentFile(base, segments.file_bytes, segments.modified_ms(base))

    def _usage(self) -> DiskUsage:
        segments = self._log.segments
        # The log may be on a disk of its own; as long as it is empty its directory may not be there.
        path = segments.directory.parent if segments.is_empty else segments.directory
        with disk_errors(f"asking how full the disk of {path} is"):
            return self._disk.usage(path)
