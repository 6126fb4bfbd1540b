"""Ledger of plans that were shown: each may be carried out once, and for some minutes only."""

from __future__ import annotations

from collections.abc import Callable

PLAN_SECONDS = 600.0
PLANS_MAX = 1000


class PlanLedger:
    """Plans that were shown and may be carried out once each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._expiry: dict[str, float] = {}

    def add(self, plan_id: str) -> None:
        self._expiry.pop(plan_id, None)
        if len(self._expiry) >= PLANS_MAX:
            del self._expiry[next(iter(self._expiry))]
        self._expiry[plan_id] = self._clock() + PLAN_SECONDS

    def take(self, plan_id: str) -> bool:
        """Use a plan up; return False if it was not shown, has expired or was carried out already."""
        return self._expiry.pop(plan_id, 0.0) > self._clock()
