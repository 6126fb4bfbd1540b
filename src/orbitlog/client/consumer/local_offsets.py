"""Local offsets of a broadcasting consumer: brokers keep no offsets of such groups.

Mirrors Java `LocalFileOffsetStore`, with the same file format.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.settings.atomic_file import replace_file
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.queue_bodies import QueueOffsetTable

log = logging.getLogger(__name__)


class LocalOffsets:
    """Queue offsets in memory, and in a file if `path` is given."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._saved: dict[MessageQueue, int] = {}
        if path is not None and path.exists():
            try:
                self._offsets = dict(decode_body(QueueOffsetTable, path.read_bytes()).offsets)
            except FormatError as error:
                log.warning("ignoring offsets file %s: %s", path, error)

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def put(self, queue: MessageQueue, queue_offset: int) -> None:
        self._offsets[queue] = queue_offset

    async def save(self) -> None:
        """Write the file if an offset changed. It is replaced atomically: a crash leaves the old or the new one."""
        if self._path is None or self._offsets == self._saved:
            return
        offsets = dict(self._offsets)
        try:
            await asyncio.to_thread(_write, self._path, encode_body(QueueOffsetTable(offsets)))
        except OSError as error:
            log.warning("could not write offsets file %s: %s", self._path, error)
        else:
            self._saved = offsets


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text, is_durable=False)  # saved every few seconds: an older offset means a redelivery
