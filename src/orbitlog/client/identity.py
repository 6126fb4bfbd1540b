"""Who a client is: its id in the cluster, and the unique ids that it gives to its messages.

Mirrors Java `ClientConfig.buildMQClientId` and `MessageClientIDSetter`.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from datetime import datetime

from orbitlog.formats.unique_id import UniqueId

_CHANGING_DIGITS = 12  # milliseconds and counter


def local_address() -> str:
    """The address of this machine by which others most likely know it; loopback if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def make_client_id(instance: str | None = None) -> str:
    """Return an id that no other client has: two with one id would take each other's queues."""
    return f"{local_address()}@{instance or f'{os.getpid()}#{secrets.token_hex(4)}'}"


class UniqueIdMaker:
    """Gives ids to messages; those of one process never repeat within a month."""

    def __init__(self, address: bytes | None = None) -> None:
        host = socket.inet_aton(local_address()) if address is None else address
        self._fixed = str(UniqueId(host, os.getpid(), secrets.randbits(31), 0, 0))[:-_CHANGING_DIGITS]
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0

    def make(self) -> str:
        now_ms = time.time_ns() // 1_000_000
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._find_month(now_ms)
        self._counter = counter = (self._counter + 1) & 0xFFFF
        return f"{self._fixed}{now_ms - self._month_start_ms:08X}{counter:04X}"

    def _find_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms, self._month_end_ms = int(start.timestamp() * 1000), int(end.timestamp() * 1000)
