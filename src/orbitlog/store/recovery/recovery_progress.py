"""How fast a long recovery goes and how long it will still take, in words for whoever waits.

`RecoveryPace` is pure: numbers in, words out. `PaceTeller` is what `MessageStore.open` takes for its `progress`: it
passes the words on, at most once a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

_MB = 1_000_000
_UNITS = (("GB", 1_000_000_000), ("MB", _MB), ("kB", 1_000))


@dataclass(frozen=True, slots=True)
class RecoveryPace:
    """How much was done, of how much, in what time."""

    done_bytes: int
    total_bytes: int
    elapsed_s: float

    @property
    def bytes_per_second(self) -> float:
        """The rate since the beginning; 0 where no time has passed."""
        return self.done_bytes / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def remaining_s(self) -> float | None:
        """How long the rest takes at that rate; None where nothing can be said yet."""
        rate = self.bytes_per_second
        return max(self.total_bytes - self.done_bytes, 0) / rate if rate else None

    def __str__(self) -> str:
        done = f"{size_in_words(self.done_bytes)} of {size_in_words(self.total_bytes)}"
        if self.remaining_s is None:
            return done
        return f"{done}, {self.bytes_per_second / _MB:,.0f} MB/s, {time_in_words(self.remaining_s)} left"


class PaceTeller:
    """Tells how a recovery goes: at most every `interval_s`, and at its end if anything was told before."""

    def __init__(self, now_s: Callable[[], float], tell: Callable[[RecoveryPace], None], interval_s: float = 1) -> None:
        self._now_s = now_s
        self._tell = tell
        self._interval_s = interval_s
        self._started_s = self._told_s = now_s()
        self._has_told = False

    def __call__(self, done_bytes: int, total_bytes: int) -> None:
        now_s = self._now_s()
        is_end = done_bytes >= total_bytes and self._has_told
        if now_s - self._told_s >= self._interval_s or is_end:
            self._tell(RecoveryPace(done_bytes, total_bytes, now_s - self._started_s))
            self._told_s, self._has_told = now_s, True


def size_in_words(size_bytes: int) -> str:
    for unit, unit_bytes in _UNITS:
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes} bytes"


def time_in_words(seconds: float) -> str:
    """Round as one does who waits: seconds, then minutes, then hours."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
