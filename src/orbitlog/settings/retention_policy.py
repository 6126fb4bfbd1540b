"""Retention policy: how long segments stay and at which disk usage they are deleted, as Java's settings define it."""

from __future__ import annotations

from dataclasses import dataclass

# Java takes a value outside for the nearest one inside.
_EXPIRED_PERCENT = range(10, 96)
_FORCED_PERCENT = range(30, 86)
_FULL_PERCENT = range(35, 91)


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How long messages stay, and what happens when the disk fills up; percentages are of the disk in use."""

    reserved_hours: int = 72
    delete_hours: tuple[int, ...] = (4,)
    expired_percent: int = 75
    """Over this, what has expired goes at any hour."""
    forced_percent: int = 85
    """Over this, the oldest goes whether it has expired or not, if `delete_by_force`."""
    full_percent: int = 90
    """Over this, no message is taken."""
    delete_by_force: bool = True
    files_per_step: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "expired_percent", _nearest(self.expired_percent, _EXPIRED_PERCENT))
        object.__setattr__(self, "forced_percent", _nearest(self.forced_percent, _FORCED_PERCENT))
        object.__setattr__(self, "full_percent", _nearest(self.full_percent, _FULL_PERCENT))

    @property
    def pressure_percent(self) -> int:
        """Over this the disk is a reason to delete."""
        return min(self.expired_percent, self.forced_percent, self.full_percent)


def _nearest(value: int, allowed: range) -> int:
    return min(max(value, allowed[0]), allowed[-1])
