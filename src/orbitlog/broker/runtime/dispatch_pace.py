"""How long messages are gathered before they are dispatched together.

A step of dispatch costs much before its first message, and it is the thread that serves which pays. Where many messages
come, they wait a few milliseconds for one another. Where few come, each is dispatched as soon as it is answered: its
sender is busy with the answer meanwhile, and no later send has to wait for a step that does many.
"""

from __future__ import annotations

GATHER_SECONDS = 0.005
MANY_PER_SECOND = 8_000


class DispatchPace:
    """`seconds` to gather, by how many messages came lately."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since_s = 0.0
        self._count = 0

    def note(self, now_s: float, message_count: int) -> None:
        """Take note of how many messages there have been in all."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= GATHER_SECONDS:
            self.seconds = GATHER_SECONDS if message_count - self._count > MANY_PER_SECOND * elapsed_s else 0.0
            self._since_s, self._count = now_s, message_count
