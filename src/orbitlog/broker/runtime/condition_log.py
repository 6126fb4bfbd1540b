"""Condition log: one line when a condition of the broker begins, and one when it ends.

Conditions are a disk that is too full, a store that is read-only after a failed sync, and limits that clients reach.
Each of them is read from state that exists anyway; sends are not slowed down by it.
"""

from __future__ import annotations

import logging

from orbitlog.broker.runtime.broker_state import BrokerState

log = logging.getLogger(__name__)

# A limit counts as no longer reached after this time without an event.
_QUIET_MS = 60_000


class ConditionLog:
    """Compares the state of one broker with the last look at it."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._is_full = self._is_read_only = False
        self._reached = dict(state.limits.reached)
        # By limit: when it was reached last, and its counter when that began.
        self._active: dict[str, tuple[int, int]] = {}

    def check(self) -> None:
        """Log the conditions that began or ended since the last call."""
        self._check_store()
        self._check_limits()

    def _check_store(self) -> None:
        availability = self._state.store.availability
        if bool(availability.full_disk) is not self._is_full:
            self._is_full = not self._is_full
            if self._is_full:
                log.error("disk full: sends are refused: %s", availability.full_disk)
            else:
                log.warning("disk full: ended, sends are accepted")
        if availability.failure and not self._is_read_only:
            self._is_read_only = True  # ends with a restart only
            log.error("read-only: sends are refused: %s", availability.failure)

    def _check_limits(self) -> None:
        now_ms, reached = self._state.now_ms(), self._state.limits.reached
        for key, count in reached.items():
            before = self._reached[key]
            if count > before:
                if key not in self._active:
                    log.warning("limit reached: %s, %d times since the start", key, count)
                self._active[key] = now_ms, self._active.get(key, (0, before))[1]
                self._reached[key] = count
        for key, (last_ms, first_count) in list(self._active.items()):
            if now_ms - last_ms >= _QUIET_MS:
                del self._active[key]
                log.info("limit no longer reached: %s, %d times in all", key, self._reached[key] - first_count)
