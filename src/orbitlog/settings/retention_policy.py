"""Retention policy: how long segments stay and at which disk usage they are deleted, as Java's settings define it."""

from __future__ import annotations

from dataclasses import dataclass

# Java replaces a value out of range by the nearest one in range.
_EXPIRED_PERCENT = range(10, 96)
_FORCED_PERCENT = range(30, 86)
_FULL_PERCENT = range(35, 91)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long messages are kept, and what happens when the disk fills up; percentages are of the disk in use."""

    reserved_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    expired_percent: int = 75
    """Above this, expired segments are deleted at any hour."""
    forced_percent: int = 85
    """Above this, the oldest segments are deleted, expired or not, if `delete_by_force`."""
    full_percent: int = 90
    """Above this, messages are refused."""
    delete_by_force: bool = True
    files_per_step: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "expired_percent", _nearest(self.expired_percent, _EXPIRED_PERCENT))
        object.__setattr__(self, "forced_percent", _nearest(self.forced_percent, _FORCED_PERCENT))
        object.__setattr__(self, "full_percent", _nearest(self.full_percent, _FULL_PERCENT))

    @property
    def pressure_percent(self) -> int:
        """Disk usage above which segments are deleted."""
        return min(self.expired_percent, self.forced_percent, self.full_percent)


def _nearest(value: int, allowed: range) -> int:
    return min(max(value, allowed[0]), allowed[-1])
