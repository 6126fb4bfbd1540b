"""Table limits: refuses entries beyond a limit, and warns once when a table is filled to 80 %."""

from __future__ import annotations

import logging

from orbitlog.settings.limits import Limits
from orbitlog.settings.setting import Setting

log = logging.getLogger(__name__)

_WARN_PERCENT = 80


class TableLimit:
    """The limit of one table; `kind` is the plural noun of its entries."""

    def __init__(self, limits: Limits, limit: Setting[int], kind: str) -> None:
        self._limits = limits
        self._limit = limit
        self._kind = kind
        self._is_warned = False

    def admit(self, count: int) -> None:
        """Raise `RequestRefused` if a table may not have `count` entries."""
        self._limits.refuse_over(self._limit, count)
        most = self._limits[self._limit]
        if count * 100 < most * _WARN_PERCENT:
            self._is_warned = False
        elif not self._is_warned:
            self._is_warned = True
            log.warning("%d %s of at most %d: delete unused ones or raise %s", count, self._kind, most, self._limit.key)
