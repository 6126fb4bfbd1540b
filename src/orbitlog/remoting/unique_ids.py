"""Unique message ids: set by clients for messages that they send, by brokers if a sender set none.

Mirrors Java `MessageClientIDSetter`.
"""

from __future__ import annotations

import os
from datetime import datetime

from orbitlog.formats.records.unique_id import UniqueId

_CHANGING_DIGITS = 12  # milliseconds and counter


class UniqueIds:
    """Generates ids; those of one process do not repeat within a month."""

    def __init__(self) -> None:
        # The same as `secrets` returns, without importing it and the hash modules that it needs.
        self._loader_hash = int.from_bytes(os.urandom(4)) >> 1
        self._counter = 0
        self._address = b""
        self._fixed = ""
        self._month_start_ms = self._month_end_ms = 0

    def make(self, address: bytes, now_ms: int) -> str:
        """Return an id that contains the `address` of the machine, 4 or 16 bytes."""
        if address != self._address:
            identity = UniqueId(address, os.getpid(), self._loader_hash, 0, 0)
            self._address, self._fixed = address, str(identity)[:-_CHANGING_DIGITS]
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._find_month(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._fixed}{now_ms - self._month_start_ms:08X}{counter:04X}"

    def _find_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms, self._month_end_ms = int(start.timestamp() * 1000), int(end.timestamp() * 1000)
