"""Which segments of the log may go, and why: decided from what is known, nothing is touched here.

The rules are those of Java's `CleanCommitLogService`, which goes by the time when a file was last written. Two things
are stricter: deleting by force stops when that has freed enough, and every segment that goes has a sentence that says
by which rule.
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
    """Why a segment goes."""

    EXPIRED = "expired"
    EXPIRED_ASKED = "expired, deletion asked for"
    EXPIRED_DISK_FILLING = "expired, disk filling"
    FORCED = "disk nearly full"


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment as the file system shows it."""

    base: int
    size_bytes: int
    modified_ms: int
    frees_log_disk: bool = True
    """Whether deleting it makes room on the disk whose usage counts; a spread log is on several."""


@dataclass(frozen=True, slots=True)
class DoomedSegment:
    base: int
    size_bytes: int
    rule: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What goes, oldest first; `refusal` says why no message is taken, and is empty where they are."""

    doomed: tuple[DoomedSegment, ...] = ()
    refusal: str = ""

    @property
    def end(self) -> int:
        """The physical offset up to which the log goes; 0 where nothing does."""
        return self.doomed[-1].base + self.doomed[-1].size_bytes if self.doomed else 0


@dataclass(frozen=True, slots=True)
class WatchedDisk:
    """A file system that holds a part of the store; that of the log has no name."""

    part: str
    usage: DiskUsage

    def __str__(self) -> str:
        return f"the disk of {self.part}" if self.part else "the disk"

    def is_over(self, percent: int) -> bool:
        return self.usage.used_ratio * 100 > percent


@dataclass(frozen=True, slots=True)
class Moment:
    """When it is, how full the disks are, and whether somebody asked for what has expired to go now."""

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
        """Return the first disk that is fuller than that."""
        return next((disk for disk in self.disks if disk.is_over(percent)), None)


def decide(
    segments: Iterable[SegmentFile], moment: Moment, policy: RetentionPolicy, *, removable_to: int
) -> RetentionPlan:
    """Decide what goes now.

    `segments` are the oldest first, and are asked for one by one, only as far as needed. None goes that ends behind
    `removable_to`: that is never behind the start of the last one, nor behind what is safely derived.
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
    """Tell whether anything may go at all: at another hour, on disks with room, no file need be looked at."""
    is_hour = moment.local_hour in policy.delete_hours
    return is_hour or moment.is_asked_for or moment.disk_over(policy.pressure_percent) is not None


def refusal(disks: Iterable[WatchedDisk], policy: RetentionPolicy) -> str:
    """Return why no message can be taken, or nothing."""
    for disk in disks:
        if disk.is_over(policy.full_percent):
            return (
                f"{disk} is {_percent(disk.usage)} full, and over {policy.full_percent} % (diskSpaceWarningLevelRatio)"
                f" no message is taken; free some space, the store goes on by itself"
            )
    return ""


def _rule(segment: SegmentFile, moment: Moment, policy: RetentionPolicy, freed_bytes: int) -> Rule | None:
    usage = moment.usage
    if moment.now_ms >= segment.modified_ms + policy.reserved_hours * _HOUR_MS:
        if moment.local_hour in policy.delete_hours:
            return Rule.EXPIRED
        return Rule.EXPIRED_ASKED if moment.is_asked_for else Rule.EXPIRED_DISK_FILLING
    still_used = WatchedDisk("", DiskUsage(usage.total_bytes, usage.free_bytes + freed_bytes))
    # What a segment's end frees on a disk of queues or index is not known before: one segment a step.
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
        return f"goes before its time: it {age} and {kept}, but {_full(moment, policy.forced_percent)} {forced}"
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
