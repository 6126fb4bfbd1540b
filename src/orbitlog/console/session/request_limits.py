"""Limits on requests: a token bucket for each visitor, and growing delays after failed sign-ins."""

from __future__ import annotations

from collections.abc import Callable

FREE_FAILURES = 5
DELAY_SECONDS_MAX = 60.0
ENTRIES_MAX = 10_000
_FORGET_SECONDS = 900.0


class RequestRate:
    """Requests a second for each key, with a burst; the least recently used key is dropped first."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def allow(self, key: str) -> bool:
        """Take one request from the bucket; return False if it is empty."""
        now_s = self._clock()
        tokens, at_s = self._buckets.pop(key, (float(self._burst), now_s))
        tokens = min(self._burst, tokens + (now_s - at_s) * self._per_second)
        if len(self._buckets) >= ENTRIES_MAX:
            del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = (tokens - 1 if tokens >= 1 else tokens, now_s)
        return tokens >= 1


class FailedSignIns:
    """Delays after failed sign-ins, by name and by address: five are free, then 1, 2, 4 up to 60 seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}  # count, and when the last one happened

    def wait_seconds(self, *keys: str) -> float:
        """Return how long the next attempt has to wait; 0 if it may be made now."""
        now_s = self._clock()
        return max((self._wait(key, now_s) for key in keys), default=0.0)

    def add(self, *keys: str) -> None:
        now_s = self._clock()
        for key in keys:
            count, at_s = self._failures.pop(key, (0, now_s))
            if now_s - at_s > _FORGET_SECONDS:
                count = 0
            if len(self._failures) >= ENTRIES_MAX:
                del self._failures[next(iter(self._failures))]
            self._failures[key] = count + 1, now_s

    def forget(self, *keys: str) -> None:
        for key in keys:
            self._failures.pop(key, None)

    def _wait(self, key: str, now_s: float) -> float:
        count, at_s = self._failures.get(key, (0, 0.0))
        if count < FREE_FAILURES:
            return 0.0
        delay = min(2.0 ** (count - FREE_FAILURES), DELAY_SECONDS_MAX)
        return max(0.0, at_s + delay - now_s)
