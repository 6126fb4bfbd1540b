"""Deletion: removes expired segments, then the files of queues and index that point to them, in bounded steps.

The log first: after a crash in between, queues and index point to deleted records, which readers expect and the next
step repairs. The other order would leave messages in the log that no queue has. A segment is deleted only if the units
of its messages are durable: a queue whose messages have all expired must still record how many it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from orbitlog.errors import StoreError
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.store.availability import Availability
from orbitlog.store.derived.index_files import IndexFiles
from orbitlog.store.derived.queue_set import QueueSet
from orbitlog.store.log.commitlog import CommitLog
from orbitlog.store.retention.retention_rules import (
    DoomedSegment,
    Moment,
    RetentionPlan,
    SegmentFile,
    WatchedDisk,
    decide,
    refusal,
)
from orbitlog.storefiles.disk import Disk, DiskUsage, disk_errors

_RECHECK_MS = 1_000
_ASKED_STEPS = 20  # as Java: three minutes of its steps, enough for 200 segments
_UNKNOWN = DiskUsage(0, 0)


@dataclass(frozen=True, slots=True)
class Deleted:
    """Files removed by one step, with a reason for each segment.

    `problems` are sentences about disks that could not be checked or files that could not be removed; the next step
    retries.
    """

    segments: tuple[DoomedSegment, ...] = ()
    queue_file_count: int = 0
    index_file_count: int = 0
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.segments or self.queue_file_count or self.index_file_count)


class Retention:
    """Deletes files of one store by age and free disk space."""

    def __init__(
        self,
        disk: Disk,
        log: CommitLog,
        queues: QueueSet,
        index: IndexFiles,
        *,
        policy: RetentionPolicy,
        availability: Availability,
    ) -> None:
        self._disk = disk
        self._log = log
        self._queues = queues
        self._index = index
        self._policy = policy
        self._followed_to = -1
        self._checked_ms = 0
        self._asked_steps = 0
        self._log_file_system = -1
        self._availability = availability

    @property
    def refusal(self) -> str:
        """Why disks are too full to accept messages, as of the last check; empty if they are not."""
        return self._availability.full_disk

    def follow(self, policy: RetentionPolicy) -> None:
        """Use another policy from the next step on."""
        self._policy = policy

    def ask(self) -> None:
        """Delete expired files in the next steps, at any hour."""
        self._asked_steps = _ASKED_STEPS

    def delete_once(self, now_ms: int, derived_to: int) -> Deleted:
        """Delete segments by the policy, up to `derived_to`, the end of durable derivation."""
        disks, problems = self._check_disks()
        plan = self._plan(now_ms, derived_to, disks)
        if not problems:
            self._note(plan.refusal, now_ms)
        self._log.segments.drop_before(plan.end)
        start = self._log.min_physical_offset
        queue_files = index_files = 0
        if start != self._followed_to:  # also in the first step: a crash may have interrupted the last one
            queue_files = self._queues.follow_log_start(start)
            index_files = self._index.drop_before(start)
            self._followed_to = start
        if self.refusal and plan.doomed:
            self.recheck(now_ms, at_once=True)
        return Deleted(plan.doomed, queue_files, index_files, problems)

    def recheck(self, now_ms: int, *, at_once: bool = False) -> str:
        """Return why messages are refused, checking the disks at most once a second."""
        if self.refusal and (at_once or not 0 <= now_ms - self._checked_ms < _RECHECK_MS):
            disks, problems = self._check_disks()
            self._note(problems[0] if problems else refusal(disks, self._policy), now_ms)
        return self.refusal

    def _note(self, reason: str, now_ms: int) -> None:
        self._availability.note_full_disk(reason)
        self._checked_ms = now_ms

    def _plan(self, now_ms: int, derived_to: int, disks: list[WatchedDisk]) -> RetentionPlan:
        local_hour = datetime.fromtimestamp(now_ms / 1000).hour
        moment = Moment(now_ms, local_hour, disks[0].usage, tuple(disks[1:]), self._asked_steps > 0)
        self._asked_steps = max(self._asked_steps - 1, 0)
        # A durable segment is kept: after a crash an empty log would restart at offset 0, and so would its queues.
        removable_to = min(derived_to, self._log.segments.base_of(max(self._log.flushed_to - 1, 0)))
        return decide(self._files(), moment, self._policy, removable_to=removable_to)

    def _files(self) -> Iterator[SegmentFile]:
        segments = self._log.segments
        freed = {directory: True for directory in segments.directories}
        if len(freed) > 1:
            freed = {directory: self._disk.file_system(directory) == self._log_file_system for directory in freed}
        for base in segments.bases:
            is_freed = freed.get(segments.directory_of(base), False) if len(freed) > 1 else True
            yield SegmentFile(base, segments.file_bytes, segments.modified_ms(base), is_freed)

    def _check_disks(self) -> tuple[list[WatchedDisk], tuple[str, ...]]:
        """Return the usage of the log's disk, and of the disks of queues and index if they are others.

        A disk that cannot be checked counts as empty: nothing is deleted because of it, and the problem is reported.
        """
        segments = self._log.segments
        problems: list[str] = []
        if len(segments.directories) > 1:
            places = {"": self._least_full_directory(problems)}
        else:
            # The log may be on its own disk; while it is empty its directory may not exist.
            places = {"": segments.directory.parent if segments.is_empty else segments.directory}
        if len(self._queues):
            places["the queues"] = self._queues.directory
        if self._index.file_count:
            places["the index"] = self._index.directory
        disks: list[WatchedDisk] = []
        seen: set[int] = set()
        for part, path in places.items():
            try:
                with disk_errors(f"checking the free space of {path}"):
                    file_system = self._disk.file_system(path)
                    usage = None if file_system in seen else self._disk.usage(path)
            except StoreError as error:
                problems.append(str(error))
                usage, file_system = _UNKNOWN, -1
            if usage is not None:
                seen.add(file_system)
                disks.append(WatchedDisk(part, usage))
            if not part:
                self._log_file_system = file_system
        return disks, tuple(problems)

    def _least_full_directory(self, problems: list[str]) -> Path:
        """Return the log directory with the most free space, which Java checks; full ones get no new segment.

        A directory that cannot be checked gets no new segment either.
        """
        segments = self._log.segments
        used: dict[Path, float] = {}
        for directory in segments.directories:
            try:
                with disk_errors(f"checking the free space of {directory}"):
                    used[directory] = self._disk.usage(directory).used_ratio
            except StoreError as error:
                problems.append(str(error))
        limit = self._policy.forced_percent / 100
        segments.note_full(path for path in segments.directories if used.get(path, 1.0) > limit)
        return min(used, key=lambda path: used[path], default=segments.directories[0])
