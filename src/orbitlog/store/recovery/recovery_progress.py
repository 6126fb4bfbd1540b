"""Recovery progress: speed and remaining time of a long recovery, as text for the operator.

`RecoveryProgress` is pure: numbers in, text out. `ProgressReporter` is a `progress` callback for `MessageStore.open`;
it passes the text on at most once a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_MB = 1_000_000
_UNITS = (("GB", 1_000_000_000), ("MB", _MB), ("kB", 1_000))


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """Bytes done, bytes in total, and the time taken."""

    done_bytes: int
    total_bytes: int
    elapsed_s: float

    @property
    def bytes_per_second(self) -> float:
        """Average rate since the start; 0 if no time has passed."""
        return self.done_bytes / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def remaining_s(self) -> float | None:
        """Estimated time for the rest; None without an estimate yet."""
        rate = self.bytes_per_second
        return max(self.total_bytes - self.done_bytes, 0) / rate if rate else None

    def __str__(self) -> str:
        done = f"{size_in_words(self.done_bytes)} of {size_in_words(self.total_bytes)}"
        if self.remaining_s is None:
            return done
        return f"{done}, {self.bytes_per_second / _MB:,.0f} MB/s, {time_in_words(self.remaining_s)} left"


class ProgressReporter:
    """Reports progress at most every `interval_s`, and at the end if anything was reported before."""

    def __init__(
        self, now_s: Callable[[], float], tell: Callable[[RecoveryProgress], None], interval_s: float = 1
    ) -> None:
        self._now_s = now_s
        self._tell = tell
        self._interval_s = interval_s
        self._started_s = self._told_s = now_s()
        self._has_told = False

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        now_s = self._now_s()
        is_end = done_bytes >= total_bytes and self._has_told
        if now_s - self._told_s >= self._interval_s or is_end:
            self._tell(RecoveryProgress(done_bytes, total_bytes, now_s - self._started_s))
            self._told_s, self._has_told = now_s, True


def size_in_words(size_bytes: int) -> str:
    for unit, unit_bytes in _UNITS:
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes} bytes"


def time_in_words(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, rounded for reading."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
