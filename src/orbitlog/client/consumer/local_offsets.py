"""How far a broadcasting consumer is, in a file of its own: brokers keep no offsets of such groups.

Mirrors Java `LocalFileOffsetStore`, in its form.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from orbitlog.errors import FormatError
from orbitlog.settings.atomic_file import replace_file
from orbitlog.wire.bodies.body_json import MessageQueue, decode_body, encode_body
from orbitlog.wire.bodies.queue_bodies import QueueOffsetTable

log = logging.getLogger(__name__)


class LocalOffsets:
    """Queue offsets, kept in memory, and in a file if there is one."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._saved: dict[MessageQueue, int] = {}
        if path is not None and path.exists():
            try:
                self._offsets = dict(decode_body(QueueOffsetTable, path.read_bytes()).offsets)
            except FormatError as error:
                log.warning("%s cannot be read, so it is not used: %s", path, error)

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def put(self, queue: MessageQueue, queue_offset: int) -> None:
        self._offsets[queue] = queue_offset

    async def save(self) -> None:
        """Write the file if something changed; a crash leaves the one before."""
        if self._path is None or self._offsets == self._saved:
            return
        offsets = dict(self._offsets)
        try:
            await asyncio.to_thread(_write, self._path, encode_body(QueueOffsetTable(offsets)))
        except OSError as error:
            log.warning("%s cannot be written: %s", self._path, error)
        else:
            self._saved = offsets


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text, is_durable=False)  # saved every few seconds: an older offset means a redelivery
