"""Replay record: source, target and new id of each replayed dead letter, one JSON object per line.

A line is synced before each send, and another after it. After a crash, only the last send is uncertain: it is looked
up in its target topic by its id.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from orbitlog.errors import ClientError

SENDING, SENT = "sending", "sent"
_LINES_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class ReplayedMessage:
    """One line of a replay record."""

    state: str
    topic: str
    brokerName: str
    queueId: int
    queueOffset: int
    msgId: str
    toTopic: str
    newMsgId: str
    atMs: int
    toQueueId: int = -1
    toQueueOffset: int = -1

    @property
    def source(self) -> tuple[str, str, int, int]:
        """Topic, broker, queue and offset of the dead letter."""
        return self.topic, self.brokerName, self.queueId, self.queueOffset


class ReplayRecord:
    """A replay record file; existing lines are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = _read(path)
        self._file: BinaryIO | None = None

    @property
    def sent(self) -> list[ReplayedMessage]:
        return [line for line in self._lines.values() if line.state == SENT]

    @property
    def unfinished(self) -> list[ReplayedMessage]:
        """Messages whose send was interrupted: the last one, if any."""
        return [line for line in self._lines.values() if line.state == SENDING]

    def find(self, source: tuple[str, str, int, int]) -> ReplayedMessage | None:
        return self._lines.get(source)

    def __enter__(self) -> ReplayRecord:
        # Terminate a torn last line, so that the next one starts on a line of its own.
        self._file = self.path.open("ab")
        if self._file.tell() and self.path.read_bytes()[-1:] != b"\n":
            self._file.write(b"\n")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def note(self, line: ReplayedMessage) -> None:
        """Append a line; it is synced when this returns."""
        assert self._file is not None
        self._file.write(json.dumps(asdict(line)).encode() + b"\n")
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._lines[line.source] = line

    def note_sent(self, line: ReplayedMessage, queue_id: int, queue_offset: int) -> None:
        self.note(replace(line, state=SENT, toQueueId=queue_id, toQueueOffset=queue_offset))


def _read(path: Path) -> dict[tuple[str, str, int, int], ReplayedMessage]:
    by_source: dict[tuple[str, str, int, int], ReplayedMessage] = {}
    if not path.exists():
        return by_source
    lines = path.read_bytes().split(b"\n")
    for number, text in enumerate(lines[:_LINES_MAX], 1):
        if not text.strip():
            continue
        try:
            line = ReplayedMessage(**json.loads(text))
        except (ValueError, TypeError) as error:
            if number >= len(lines) - 1 or not text.endswith(b"}"):
                continue  # torn by a crash
            raise ClientError(f"{path}, line {number}: not a valid replay record ({error})") from None
        by_source[line.source] = line
    return by_source
