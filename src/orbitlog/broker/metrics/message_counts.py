"""Message counts: number, bytes and sizes of the stored messages of one topic and type."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from orbitlog.observe.metric import Histogram
from orbitlog.observe.metric_table import MESSAGE_SIZE

SMALL_BYTES: Final = int(MESSAGE_SIZE.buckets[0])
"""Bound of the first bucket: most messages are in it."""


class MessageCounts:
    """Messages of one topic and type: their number, bytes, and sizes by bucket."""

    __slots__ = ("messages", "size_bytes", "sizes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes = 0
        self.sizes = Histogram(MESSAGE_SIZE.buckets)

    def add(self, messages: int, size_bytes: int, sizes: int) -> None:
        """Count messages of about the same size, as `sizes` entries of the histogram."""
        self.messages += messages
        self.size_bytes += size_bytes
        histogram = self.sizes
        each = size_bytes // messages
        histogram.counts[0 if each <= SMALL_BYTES else bisect_left(histogram.bounds, each)] += sizes
        histogram.total += each * sizes if messages > sizes else size_bytes
