"""Failed authentications by address: slows down an address that fails often, and closes its connections.

Only failed requests are affected: clients with valid credentials at the same address are served as ever. Accounts
are never locked, because any client could then lock out another one. The table has a maximum size: the address that has
failed least recently is dropped, which an attacker with very many addresses could achieve without it as well.
"""

from __future__ import annotations

from collections.abc import Callable

WINDOW_MS = 60_000
DELAY_S = 1.0
CLOSE_FACTOR = 10
ADDRESSES_MAX = 4096


class FailedAttempts:
    """Counts failures of each address in windows of a minute."""

    def __init__(self, free: int, now_ms: Callable[[], int]) -> None:
        self._free = free
        self._now_ms = now_ms
        self._failures: dict[str, tuple[int, int]] = {}  # start of the window and count; the most recent one is last
        self.delayed_count = 0
        self.closed_count = 0

    def add(self, ip: str) -> float | None:
        """Count a failure; return after how many seconds it is answered, None if the connection is to be closed."""
        now_ms = self._now_ms()
        started_ms, count = self._failures.pop(ip, (now_ms, 0))
        if now_ms - started_ms >= WINDOW_MS:
            started_ms, count = now_ms, 0
        count += 1
        if len(self._failures) >= ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[ip] = started_ms, count
        if count <= self._free:
            return 0.0
        if count > self._free * CLOSE_FACTOR:
            self.closed_count += 1
            return None
        self.delayed_count += 1
        return DELAY_S

    def __len__(self) -> int:
        return len(self._failures)
