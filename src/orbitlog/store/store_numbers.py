"""Store numbers: counters and marks of a store, for operators, Java's admin tools and metrics.

A snapshot has counters that only grow and current marks; rates are the difference of two snapshots.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreNumbers:
    """A snapshot of a store."""

    at_ms: int
    messages_appended: int
    bytes_appended: int
    messages_refused: int
    min_physical_offset: int
    written_to: int
    flushed_to: int
    dispatched_to: int
    segment_count: int
    queue_count: int
    unit_count: int
    index_file_count: int
    key_count: int
    damage_count: int

    @property
    def flush_lag_bytes(self) -> int:
        return self.written_to - self.flushed_to

    @property
    def dispatch_lag_bytes(self) -> int:
        return self.written_to - self.dispatched_to


@dataclass(frozen=True, slots=True)
class StoreRates:
    """Rates per second between two snapshots."""

    messages_per_second: float
    bytes_per_second: float
    refused_per_second: float
    flushed_bytes_per_second: float
    dispatched_bytes_per_second: float


def rates_between(before: StoreNumbers, after: StoreNumbers) -> StoreRates:
    """Return the rates between two snapshots; all 0 if no time has passed."""
    seconds = (after.at_ms - before.at_ms) / 1000
    if seconds <= 0:
        return StoreRates(0.0, 0.0, 0.0, 0.0, 0.0)
    return StoreRates(
        (after.messages_appended - before.messages_appended) / seconds,
        (after.bytes_appended - before.bytes_appended) / seconds,
        (after.messages_refused - before.messages_refused) / seconds,
        (after.flushed_to - before.flushed_to) / seconds,
        (after.dispatched_to - before.dispatched_to) / seconds,
    )
