"""Retention rules: decides which segments of the log are deleted, and why; pure, no file is touched.

The rules are those of Java's `CleanCommitLogService`, which uses the modification time of a file. Two are stricter:
forced deletion stops when enough space is free, and every deleted segment has a sentence that names its rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from orbitlog.formats.store_tree import offset_file_name
from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.storefiles.disk import DiskUsage

_HOUR_MS = 3_600_000


class Rule(Enum):
    """Why a segment is deleted."""

    EXPIRED = "expired"
    EXPIRED_ASKED = "expired, deletion asked for"
    EXPIRED_DISK_FILLING = "expired, disk filling"
    FORCED = "disk nearly full"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment file: base, size and modification time."""

    base: int
    size_bytes: int
    modified_ms: int
    frees_log_disk: bool = True
    """Whether deleting it frees space on the disk that is checked; a spread log is on several disks."""


@dataclass(frozen=True, slots=True)
class DoomedSegment:
    base: int
    size_bytes: int
    rule: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """Segments to delete, oldest first; `refusal` states why messages are refused, empty if they are not."""

    doomed: tuple[DoomedSegment, ...] = ()
    refusal: str = ""

    @property
    def end(self) -> int:
        """Physical offset up to which the log is deleted; 0 if nothing is."""
        return self.doomed[-1].base + self.doomed[-1].size_bytes if self.doomed else 0


@dataclass(frozen=True, slots=True)
class WatchedDisk:
    """A file system with a part of the store; the log's has an empty name."""

    part: str
    usage: DiskUsage

    def __str__(self) -> str:
        return f"the disk of {self.part}" if self.part else "the disk"

    def is_over(self, percent: int) -> bool:
        return self.usage.used_ratio * 100 > percent


@dataclass(frozen=True, slots=True)
class Moment:
    """The time, the usage of the disks, and whether a deletion of expired files was requested."""

    now_ms: int
    local_hour: int
    usage: DiskUsage
    others: tuple[WatchedDisk, ...] = ()
    is_asked_for: bool = False

    @property
    def disks(self) -> tuple[WatchedDisk, ...]:
        """Every disk, the log's first."""
        return WatchedDisk("", self.usage), *self.others

    def disk_over(self, percent: int) -> WatchedDisk | None:
        """Return the first disk whose usage is over a percentage."""
        return next((disk for disk in self.disks if disk.is_over(percent)), None)


def decide(
    segments: Iterable[SegmentFile], moment: Moment, policy: RetentionPolicy, *, removable_to: int
) -> RetentionPlan:
    """Return the segments to delete now.

    `segments` come oldest first and are read only while needed. No segment that ends after `removable_to` is
    deleted; that offset is never past the start of the last segment, nor past the end of durable derivation.
    """
    doomed: list[DoomedSegment] = []
    if is_due(moment, policy):
        freed_bytes = 0
        for segment in segments:
            if len(doomed) == policy.files_per_step or segment.base + segment.size_bytes > removable_to:
                break
            rule = _rule(segment, moment, policy, freed_bytes)
            if rule is None:
                break
            reason = f"segment {offset_file_name(segment.base)} {_because(rule, segment, moment, policy)}"
            doomed.append(DoomedSegment(segment.base, segment.size_bytes, rule, reason))
            freed_bytes += segment.size_bytes if segment.frees_log_disk else 0
    return RetentionPlan(tuple(doomed), refusal(moment.disks, policy))


def is_due(moment: Moment, policy: RetentionPolicy) -> bool:
    """Return whether anything may be deleted: at other hours, with enough free space, no file is read."""
    is_hour = moment.local_hour in policy.delete_hours
    return is_hour or moment.is_asked_for or moment.disk_over(policy.pressure_percent) is not None


def refusal(disks: Iterable[WatchedDisk], policy: RetentionPolicy) -> str:
    """Return why messages are refused, or an empty string."""
    for disk in disks:
        if disk.is_over(policy.full_percent):
            return (
                f"{disk} is {_percent(disk.usage)} full, over {policy.full_percent} % (diskSpaceWarningLevelRatio):"
                " messages are refused until space is freed"
            )
    return ""


def _rule(segment: SegmentFile, moment: Moment, policy: RetentionPolicy, freed_bytes: int) -> Rule | None:
    usage = moment.usage
    if moment.now_ms >= segment.modified_ms + policy.reserved_hours * _HOUR_MS:
        if moment.local_hour in policy.delete_hours:
            return Rule.EXPIRED
        return Rule.EXPIRED_ASKED if moment.is_asked_for else Rule.EXPIRED_DISK_FILLING
    still_used = WatchedDisk("", DiskUsage(usage.total_bytes, usage.free_bytes + freed_bytes))
    # The space that a deleted segment frees on a disk of queues or index is unknown: one segment a step.
    others = () if freed_bytes else moment.others
    if policy.delete_by_force and any(disk.is_over(policy.forced_percent) for disk in (still_used, *others)):
        return Rule.FORCED
    return None


def _because(rule: Rule, segment: SegmentFile, moment: Moment, policy: RetentionPolicy) -> str:
    age = f"was last written {_age(moment.now_ms - segment.modified_ms)} ago"
    kept = f"messages are kept for {policy.reserved_hours} h (fileReservedTime)"
    if rule is Rule.EXPIRED:
        return f"{age} and {kept}; it is the hour to delete, {moment.local_hour:02d} (deleteWhen)"
    if rule is Rule.EXPIRED_ASKED:
        return f"{age} and {kept}; deleting what has expired was asked for"
    forced = f"{policy.forced_percent} % (diskSpaceCleanForciblyRatio)"
    if rule is Rule.FORCED:
        return f"is deleted early: it {age} and {kept}, but {_full(moment, policy.forced_percent)} {forced}"
    limit = policy.expired_percent
    if moment.disk_over(limit) is not None:
        return f"{age} and {kept}; {_full(moment, limit)} {limit} % (diskMaxUsedSpaceRatio)"
    return f"{age} and {kept}; {_full(moment, policy.pressure_percent)} {forced}"


def _full(moment: Moment, percent: int) -> str:
    disk = moment.disk_over(percent) or moment.disks[0]
    return f"{disk} is {_percent(disk.usage)} full, over"


def _percent(usage: DiskUsage) -> str:
    return f"{usage.used_ratio * 100:.1f} %"


def _age(age_ms: int) -> str:
    hours, minutes = divmod(max(age_ms, 0) // 60_000, 60)
    return f"{hours} h" if hours >= 10 else f"{hours} h {minutes} min"
