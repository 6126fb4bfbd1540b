"""Delay levels: `1s 5s 10s … 2h` numbers the fixed delays that 4.x offers from 1 on.

A delayed message waits in SCHEDULE_TOPIC_XXXX, one queue a level. Mirrors Java
`ScheduleMessageService.parseDelayLevel` and `computeDeliverTimestamp`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats.java import INT_MAX, INT_MIN

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX = 1024

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MISSING_LEVEL_MS = 1_000


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The table of delays; `delays_ms[0]` is level 1."""

    delays_ms: tuple[int, ...]

    @property
    def max_level(self) -> int:
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        return min(level, self.max_level)

    def deliver_timestamp_ms(self, level: int, store_timestamp_ms: int) -> int:
        """Return the due timestamp of a message; a level that the table lacks is one second."""
        delay_ms = self.delays_ms[level - 1] if 0 < level <= self.max_level else _MISSING_LEVEL_MS
        return store_timestamp_ms + delay_ms


def parse_delay_levels(text: str) -> DelayLevels:
    """Read the setting `messageDelayLevel`."""
    items = text.split()
    if len(items) > LEVELS_MAX:
        raise LimitExceeded(field="messageDelayLevel", limit=LEVELS_MAX, got=len(items))
    delays = []
    for item in items:
        number, unit = item[:-1], item[-1:]
        if unit not in _UNIT_MS or not number.isdecimal() or len(number) > 9:
            raise BadField(f"{item!r} is not a number and one of s, m, h, d", field="messageDelayLevel")
        delays.append(int(number) * _UNIT_MS[unit])
    return DelayLevels(tuple(delays))


def parse_level(text: str) -> int | None:
    """Read the property DELAY as Java's `Integer.parseInt`; return None if that would throw."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > 1024 or max(digits) > "\uffff":
        return None
    level = int(text)
    return level if INT_MIN <= level <= INT_MAX else None


STANDARD_LEVELS = parse_delay_levels(DEFAULT_LEVELS)
