"""Dispatch pace: how long appended messages wait so that one dispatch step covers many.

A step has a fixed cost, which the thread that serves requests pays. At a high rate messages wait a few milliseconds and
share a step. At a low rate each is dispatched right after its response: the sender is busy with that meanwhile, and no
later send waits for a long step.
"""

from __future__ import annotations

GATHER_SECONDS = 0.005
MANY_PER_SECOND = 8_000


class DispatchPace:
    """The delay of the next step in `seconds`, from the rate of appended messages."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since_s = 0.0
        self._count = 0

    def note(self, now_s: float, message_count: int) -> None:
        """Record the number of messages appended so far, and derive the rate since the last call."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= GATHER_SECONDS:
            self.seconds = GATHER_SECONDS if message_count - self._count > MANY_PER_SECOND * elapsed_s else 0.0
            self._since_s, self._count = now_s, message_count
