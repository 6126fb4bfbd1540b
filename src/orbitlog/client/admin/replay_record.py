"""The record of a replay: which dead letter was sent again, where to and under which id. One JSON object a line.

A line goes to the disk before each send and another after it. So a replay that was cut off knows of every message
whether it was sent, but for the last: that one is looked for where it should be, by its id.
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
    """One line."""

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
    def place(self) -> tuple[str, str, int, int]:
        """What it was sent from."""
        return self.topic, self.brokerName, self.queueId, self.queueOffset


class ReplayRecord:
    """A file of such lines; what it holds already counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = _read(path)
        self._file: BinaryIO | None = None

    @property
    def sent(self) -> list[ReplayedMessage]:
        return [each for each in self._lines.values() if each.state == SENT]

    @property
    def unfinished(self) -> list[ReplayedMessage]:
        """Those of which nobody knows whether they were sent: the last, if any."""
        return [each for each in self._lines.values() if each.state == SENDING]

    def find(self, place: tuple[str, str, int, int]) -> ReplayedMessage | None:
        return self._lines.get(place)

    def __enter__(self) -> ReplayRecord:
        # A last line that was cut off is ended, so that the next does not grow together with it.
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
        """Write a line down; it is on the disk when this returns."""
        assert self._file is not None
        self._file.write(json.dumps(asdict(line)).encode() + b"\n")
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._lines[line.place] = line

    def note_sent(self, line: ReplayedMessage, queue_id: int, queue_offset: int) -> None:
        self.note(replace(line, state=SENT, toQueueId=queue_id, toQueueOffset=queue_offset))


def _read(path: Path) -> dict[tuple[str, str, int, int], ReplayedMessage]:
    found: dict[tuple[str, str, int, int], ReplayedMessage] = {}
    if not path.exists():
        return found
    lines = path.read_bytes().split(b"\n")
    for number, text in enumerate(lines[:_LINES_MAX], 1):
        if not text.strip():
            continue
        try:
            line = ReplayedMessage(**json.loads(text))
        except (ValueError, TypeError) as error:
            if number >= len(lines) - 1 or not text.endswith(b"}"):
                continue  # cut off while it was written
            raise ClientError(f"{path}, line {number}: this is no record of a replay ({error})") from None
        found[line.place] = line
    return found
