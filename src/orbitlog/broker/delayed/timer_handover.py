"""Timer hand-over: reads Java's timer files after a Java broker, and writes them when Orbitlog stops cleanly.

`config/timercheck` records Java's progress: slots before a second are delivered, queue offsets before a number are on
the wheel. For a Java broker Orbitlog writes the timer log with the waiting messages, and the checkpoint. Java rebuilds
its wheel from the log when it starts (`TimerMessageStore.recover`), so no wheel is written, and an existing one is
removed. Java also derives the next message of the timer topic from the last unit of the log: if no waiting message is
the last one, a unit of a past second records it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from orbitlog.errors import FormatError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.timer_checkpoint import (
    TIMER_CHECKPOINT_FILE,
    TimerCheckpoint,
    decode_timer_checkpoint,
    encode_timer_checkpoint,
)
from orbitlog.formats.records.timer_message import PRECISION_MS
from orbitlog.storefiles.disk import Disk, RealDisk

log = logging.getLogger(__name__)

# Reading this many records takes some seconds of a stop; with more the files are not written.
WAITING_MAX = 200_000
_OLDEST_MS = 3_600_000


class JavaTimer(NamedTuple):
    """One message for Java's wheel, in order of queue offsets."""

    queue_offset: int
    physical_offset: int
    size_bytes: int
    topic_hash: int
    stored_ms: int
    slot_ms: int
    is_roll: bool = False
    is_delete: bool = False


class TimerHandOver:
    """The timer files of one store; `log_bytes` is the size of a timer log file, if an operator set it."""

    def __init__(self, root: Path, disk: Disk | None = None, log_bytes: int | None = None) -> None:
        self._root = root
        self._disk = disk or RealDisk()
        self._log_bytes = log_bytes

    @property
    def _checkpoint_path(self) -> Path:
        return self._root / tree.CONFIG / TIMER_CHECKPOINT_FILE

    def checkpoint(self) -> tuple[TimerCheckpoint | None, int]:
        """Return the checkpoint in `timercheck` and its CRC; None and 0 if it does not exist or is unreadable."""
        data = self._disk.read_file(self._checkpoint_path)
        if data is None:
            return None, 0
        try:
            return decode_timer_checkpoint(data), crc32(data)
        except FormatError as error:
            log.warning("ignoring %s: %s", self._checkpoint_path, error)
            return None, crc32(data)

    def write(self, waiting: Iterable[JavaTimer], last: JavaTimer, now_ms: int) -> int:
        """Write the waiting messages for a Java broker; return the CRC of the checkpoint.

        `last` is the last message of the timer topic that was loaded.
        """
        from orbitlog.broker.delayed.timer_log_writer import write_timer_log  # a start writes none

        oldest_ms = now_ms - now_ms % PRECISION_MS - _OLDEST_MS
        timers = sorted(timer._replace(slot_ms=max(timer.slot_ms, oldest_ms)) for timer in waiting)
        read_ms = min([now_ms - now_ms % PRECISION_MS, *(timer.slot_ms for timer in timers)])
        if not timers or timers[-1].queue_offset < last.queue_offset:
            timers.append(last._replace(slot_ms=read_ms - 2 * PRECISION_MS, is_roll=False, is_delete=False))
        end = write_timer_log(self._disk, self._root / tree.TIMER_LOG, timers, self._log_bytes)
        before, _ = self.checkpoint()
        checkpoint = replace(
            before or TimerCheckpoint(),
            last_read_time_ms=read_ms,
            last_log_flush_position=end,
            last_queue_offset=last.queue_offset + 1,
            master_queue_offset=last.queue_offset + 1,
        )
        data = encode_timer_checkpoint(checkpoint)
        self._disk.make_directory(self._checkpoint_path.parent)
        self._disk.replace_file(self._checkpoint_path, data)
        return crc32(data)
