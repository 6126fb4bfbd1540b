"""Queue search: the queues that one POP request looks at next, in topics that may have 65,535 of them.

A narrow topic is searched at once. A wide one is searched in windows, each from the end of the last one: the event loop
serves other requests between them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NARROW_QUEUES = 1_024
"""Topics with at most this number of queues, with their retry topics, are searched at once."""
WINDOW_QUEUES = 10_000
"""Queues of a wide topic that one window covers at most."""
WINDOW_USED_QUEUES = 250
"""Queues with messages, now or earlier, that one window has at most: each is read."""

Span = tuple[str, int]
"""A topic and the number of its queues."""
IsUsed = Callable[[str, int], bool]


@dataclass(slots=True)
class QueueSearch:
    """The search of one request."""

    _position: int = -1
    _left: int = 0
    _continues: bool = False
    is_planned: bool = False
    """Whether a call that continues the search is planned."""

    @property
    def is_unfinished(self) -> bool:
        """Return whether queues are left that the last window did not cover."""
        return self._left > 0

    def continue_next(self) -> None:
        """Let the next window start at the end of the last one; without it, all queues are searched from there on."""
        self._continues = True

    def next_window(self, spans: Sequence[Span], is_used: IsUsed) -> list[tuple[str, int]]:
        """Return the used queues of the next window."""
        total = sum(count for _, count in spans)
        if not self._continues or self._left > total:
            self._left = total
        self._continues = False
        if not 0 <= self._position < total:
            self._position = random.randrange(total) if total else 0  # noqa: S311 - not for security
        used: list[tuple[str, int]] = []
        uncovered = min(self._left, WINDOW_QUEUES)
        self._left -= uncovered
        while uncovered and len(used) < WINDOW_USED_QUEUES:
            uncovered -= self._cover_run(spans, uncovered, is_used, used)
            self._position %= total
        self._left += uncovered
        return used

    def _cover_run(self, spans: Sequence[Span], most: int, is_used: IsUsed, used: list[tuple[str, int]]) -> int:
        """Cover queues of one topic from the position on; return their number."""
        topic, start, count = self._place(spans)
        covered = 0
        for queue_id in range(start, min(count, start + most)):
            covered += 1
            if is_used(topic, queue_id):
                used.append((topic, queue_id))
                if len(used) == WINDOW_USED_QUEUES:
                    break
        self._position += covered
        return covered

    def _place(self, spans: Sequence[Span]) -> tuple[str, int, int]:
        """Return the topic at the position, the queue in it, and the number of its queues."""
        queue_id = self._position
        for topic, count in spans:
            if queue_id < count:
                return topic, queue_id, count
            queue_id -= count
        raise AssertionError("the position is past all queues")
