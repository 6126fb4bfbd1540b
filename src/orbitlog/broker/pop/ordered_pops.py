"""Ordered pops: a queue delivers its next batch after the last one is acknowledged or its invisibility timeout passed.

Mirrors `ConsumerOrderInfoManager`. A pure table, saved to `consumerOrderInfo.json` as by Java; callers pass the time.
Unacknowledged messages are popped from the queue itself a second time: a retry topic would break the order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from orbitlog.broker.pop.popped_queues import PopKey
from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.formats.tables.offset_tables import ConsumerOrderInfo, OrderInfo, TopicGroup

_BATCH_MAX = 63  # Java keeps acknowledgements in the bits of a long


class OrderedPops:
    """The last batch of each queue and group."""

    def __init__(self, offsets: CommittedOffsets, saved: ConsumerOrderInfo | None = None) -> None:
        self._offsets = offsets
        saved = saved or ConsumerOrderInfo()
        self._batches = {
            PopKey(key.topic, key.group, queue_id): batch
            for key, queues in saved.table.items()
            for queue_id, batch in queues.items()
        }
        self._unknown = saved.unknown
        self.is_changed = False

    def is_blocked(self, key: PopKey, attempt_id: str | None, now_ms: int) -> bool:
        """Return whether a batch is in flight; a retry of the same attempt gets the same batch."""
        batch = self._batches.get(key)
        if batch is None or (attempt_id and attempt_id == batch.attempt_id):
            return False
        return any(now_ms < _visible_ms(batch, queue_offset) for queue_offset in _pending(batch))

    def take(
        self, key: PopKey, queue_offsets: Sequence[int], *, now_ms: int, invisible_ms: int, attempt_id: str | None
    ) -> dict[int, int]:
        """Record a batch as in flight; return how often its messages were delivered before, if they were."""
        assert len(queue_offsets) <= _BATCH_MAX
        before = self._batches.get(key)
        counts = _counts(before, queue_offsets, attempt_id) if before is not None else {}
        first = queue_offsets[0]
        self._batches[key] = OrderInfo(
            pop_time_ms=now_ms,
            invisible_time_ms=invisible_ms,
            packed_queue_offsets=(first, *(queue_offset - first for queue_offset in queue_offsets[1:])),
            consumed_counts=counts or None,
            last_consume_timestamp_ms=now_ms,
            attempt_id=attempt_id,
        )
        self.is_changed = True
        return counts

    def acknowledge(self, key: PopKey, queue_offset: int, pop_timestamp_ms: int) -> int | None:
        """Acknowledge a message; return the offset that the group may commit now, None if the receipt is invalid."""
        batch = self._batches.get(key)
        if batch is None or batch.pop_time_ms != pop_timestamp_ms or queue_offset not in batch.queue_offsets:
            return None
        bit = 1 << batch.queue_offsets.index(queue_offset)
        batch = self._batches[key] = replace(batch, committed_bits=batch.committed_bits | bit)
        self.is_changed = True
        return next(iter(_pending(batch)), batch.queue_offsets[-1] + 1)

    def keep_longer(self, key: PopKey, queue_offset: int, pop_timestamp_ms: int, visible_ms: int) -> bool:
        """Change a message's invisibility timeout; return False if the receipt is invalid."""
        batch = self._batches.get(key)
        if batch is None or batch.pop_time_ms != pop_timestamp_ms or queue_offset not in batch.queue_offsets:
            return False
        times = {**(batch.next_visible_times_ms or {}), queue_offset: visible_ms}
        self._batches[key] = replace(batch, next_visible_times_ms=times)
        self.is_changed = True
        return True

    def forget(self, key: PopKey) -> None:
        """Unblock a queue: the group's offset was moved."""
        if self._batches.pop(key, None) is not None:
            self.is_changed = True

    def forget_topics(self, topics: Collection[str]) -> None:
        for key in [key for key in self._batches if key.topic in topics]:
            self.forget(key)

    def snapshot(self) -> ConsumerOrderInfo:
        """Return the table to save, without topics and groups that were deleted."""
        self._batches = {key: batch for key, batch in self._batches.items() if self._offsets.find(*key) is not None}
        self.is_changed = False
        table: dict[TopicGroup, dict[int, OrderInfo]] = {}
        for key, batch in self._batches.items():
            table.setdefault(TopicGroup(key.topic, key.group), {})[key.queue_id] = batch
        return ConsumerOrderInfo(table, unknown=self._unknown)


def _pending(batch: OrderInfo) -> list[int]:
    return [queue_offset for bit, queue_offset in enumerate(batch.queue_offsets) if not batch.committed_bits >> bit & 1]


def _visible_ms(batch: OrderInfo, queue_offset: int) -> int:
    own = (batch.next_visible_times_ms or {}).get(queue_offset)
    return own if own is not None else batch.pop_time_ms + (batch.invisible_time_ms or 0)


def _counts(before: OrderInfo, queue_offsets: Sequence[int], attempt_id: str | None) -> dict[int, int]:
    counted = dict(before.consumed_counts or {})
    if attempt_id and attempt_id == before.attempt_id:
        return counted
    seen = set(before.queue_offsets)
    return {queue_offset: counted.get(queue_offset, 0) + 1 for queue_offset in queue_offsets if queue_offset in seen}
