"""Consume window: unsettled messages of one queue; decides the offset to commit and when to pull more.

Messages may be settled in any order, but a committed offset means that all earlier messages are consumed. So the
window commits the smallest unsettled offset, or the next offset to pull if none is left. Mirrors Java `ProcessQueue`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

COUNT_MAX = 1_000
BYTES_MAX = 100 * 1024 * 1024
SPAN_MAX = 2_000


@dataclass
class ConsumeWindow:
    """Unsettled messages of one queue, by queue offset."""

    next_queue_offset: int
    count_max: int = COUNT_MAX
    bytes_max: int = BYTES_MAX
    span_max: int = SPAN_MAX
    size_bytes: int = 0
    _sizes: dict[int, int] = field(default_factory=dict)  # ascending: inserted in offset order, removed anywhere
    _finished_to: int = field(init=False)

    def __post_init__(self) -> None:
        self._finished_to = self.next_queue_offset

    def __len__(self) -> int:
        return len(self._sizes)

    def fetched(self, messages: Iterable[tuple[int, int]], next_queue_offset: int) -> None:
        """Add pulled messages as (queue offset, size); the next pull starts at `next_queue_offset`."""
        for queue_offset, size_bytes in messages:
            if queue_offset not in self._sizes:
                self._sizes[queue_offset] = size_bytes
                self.size_bytes += size_bytes
        self.next_queue_offset = next_queue_offset

    def has(self, queue_offset: int) -> bool:
        """Return whether a message was pulled and is not settled."""
        return queue_offset in self._sizes

    def finish(self, queue_offset: int) -> bool:
        """Remove a settled message; return False if it is not in the window."""
        size_bytes = self._sizes.pop(queue_offset, None)
        if size_bytes is None:
            return False
        self.size_bytes -= size_bytes
        return True

    @property
    def commit_offset(self) -> int:
        """The offset to commit: all earlier messages are settled. Never decreases."""
        unfinished = next(iter(self._sizes), self.next_queue_offset)
        self._finished_to = max(self._finished_to, unfinished)
        return self._finished_to

    @property
    def is_full(self) -> bool:
        """Return whether pulling should wait until messages are settled."""
        if len(self._sizes) >= self.count_max or self.size_bytes >= self.bytes_max:
            return True
        first = next(iter(self._sizes), None)
        return first is not None and self.next_queue_offset - first > self.span_max
