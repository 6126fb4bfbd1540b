"""Unique ids for messages whose sender gave none, in the form that clients give them."""

from __future__ import annotations

import os
import time
from datetime import datetime

from orbitlog.formats.unique_id import UniqueId

_PORT_BYTES = 4


class UniqueIds:
    """Makes them; those of one process never repeat within a month."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loader_hash = time.monotonic_ns() & 0x7FFFFFFF
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0

    def make(self, store_host_raw: bytes, now_ms: int) -> str:
        """Return an id that names this broker."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._find_month(now_ms)
        self._counter = (self._counter + 1) & 0xFFFF
        since_ms = now_ms - self._month_start_ms
        return str(UniqueId(store_host_raw[:-_PORT_BYTES], self._process, self._loader_hash, since_ms, self._counter))

    def _find_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms, self._month_end_ms = int(start.timestamp() * 1000), int(end.timestamp() * 1000)
