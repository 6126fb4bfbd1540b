"""Messages of one queue that were fetched and are not done with: what may be committed, and when to fetch more.

Messages may be finished in any order, but a committed offset says that everything before it is done. So the window
commits the smallest unfinished offset, or what follows the last one fetched when nothing is left. Mirrors Java
`ProcessQueue`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

COUNT_MAX = 1_000
BYTES_MAX = 100 * 1024 * 1024
SPAN_MAX = 2_000


@dataclass
class ConsumeWindow:
    """Unfinished messages of one queue, by queue offset."""

    next_queue_offset: int
    count_max: int = COUNT_MAX
    bytes_max: int = BYTES_MAX
    span_max: int = SPAN_MAX
    size_bytes: int = 0
    _sizes: dict[int, int] = field(default_factory=dict)  # in ascending order: fetched so, and removed anywhere
    _finished_to: int = field(init=False)

    def __post_init__(self) -> None:
        self._finished_to = self.next_queue_offset

    def __len__(self) -> int:
        return len(self._sizes)

    def fetched(self, messages: Iterable[tuple[int, int]], next_queue_offset: int) -> None:
        """Take (queue offset, size) of what was fetched; the next fetch begins at `next_queue_offset`."""
        for queue_offset, size_bytes in messages:
            if queue_offset not in self._sizes:
                self._sizes[queue_offset] = size_bytes
                self.size_bytes += size_bytes
        self.next_queue_offset = next_queue_offset

    def has(self, queue_offset: int) -> bool:
        """Tell whether a message was fetched and is not done with."""
        return queue_offset in self._sizes

    def finish(self, queue_offset: int) -> bool:
        """A message is done with; False if it was not here, or already done."""
        size_bytes = self._sizes.pop(queue_offset, None)
        if size_bytes is None:
            return False
        self.size_bytes -= size_bytes
        return True

    @property
    def commit_offset(self) -> int:
        """Everything before it is done; never goes back."""
        unfinished = next(iter(self._sizes), self.next_queue_offset)
        self._finished_to = max(self._finished_to, unfinished)
        return self._finished_to

    @property
    def is_full(self) -> bool:
        """Tell whether fetching should wait for consumers."""
        if len(self._sizes) >= self.count_max or self.size_bytes >= self.bytes_max:
            return True
        first = next(iter(self._sizes), None)
        return first is not None and self.next_queue_offset - first > self.span_max
