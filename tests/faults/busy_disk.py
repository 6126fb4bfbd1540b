"""A crash disk for a serving broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitlog.testing.crash_disk import CrashDisk
from tests.support.broker_desk import SMALL

ROOT = Path("store")
SETTINGS = {**SMALL, "listenPort": "0", "brokerIP1": "127.0.0.1", "flushDiskType": "SYNC_FLUSH"}
_SLOW_SECONDS = 0.01


class BusyDisk(CrashDisk):
    """A disk that several threads work at, and that takes its time over tables."""

    def __init__(self) -> None:
        super().__init__()
        self._one_at_a_time = threading.RLock()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        if "config" in what:
            time.sleep(_SLOW_SECONDS)
        with self._one_at_a_time, super().step(what):
            yield

    def crash(self, seed: int) -> CrashDisk:
        with self._one_at_a_time:
            return super().crash(seed)
