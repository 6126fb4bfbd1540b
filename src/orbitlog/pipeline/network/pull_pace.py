"""Pull pace: spreads pulled bytes over time, so that a backfill does not exceed a rate at a live broker."""

from __future__ import annotations


class PullPace:
    """Computes pauses between pulls; the caller passes the time in seconds."""

    def __init__(self, bytes_per_second_max: int | None) -> None:
        self._rate = bytes_per_second_max
        self._free_at = 0.0

    def pause(self, pulled_bytes: int, now: float) -> float:
        """Record pulled bytes; return how many seconds to wait before the next pull."""
        if self._rate is None:
            return 0.0
        # Time without pulls is not saved up: after a pause a task continues at the rate, not above it.
        self._free_at = max(self._free_at, now) + pulled_bytes / self._rate
        return self._free_at - now
