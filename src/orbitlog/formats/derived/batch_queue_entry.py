"""BatchConsumeQueue unit: physical offset and queue offsets of one batch record of a queue (5.x).

Fixed 46 bytes, appended one after the other: unlike those of a plain ConsumeQueue they are found by search, not by
arithmetic. Only topics with the attribute `queue.type=BatchCQ` have them. Mirrors Java `BatchConsumeQueue`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orbitlog.errors import BadField, Truncated
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

BATCH_QUEUE_ENTRY = Layout(
    "BatchConsumeQueue unit",
    Field("physical_offset", "i64", "start of the record in the CommitLog"),
    Field("size_bytes", "i32", "length of the record"),
    Field("tags_code", "i64", "hash of the tags"),
    Field("store_timestamp_ms", "i64", "store time of the record"),
    Field("base_queue_offset", "i64", "queue offset of the first message in the record"),
    Field("message_count", "i16", "messages in the record"),
    Field("compacted_offset", "i32", "not used, -1"),
    Field("reserved", "i32", "0"),
)
BATCH_ENTRY_BYTES = BATCH_QUEUE_ENTRY.size_bytes
assert BATCH_ENTRY_BYTES == 46
BATCH_QUEUE_FILE_BYTES_DEFAULT = 300_000 * BATCH_ENTRY_BYTES
_NOT_COMPACTED = -1


@dataclass(frozen=True, slots=True)
class BatchQueueEntry:
    physical_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    base_queue_offset: int
    message_count: int
    compacted_offset: int = _NOT_COMPACTED
    reserved: int = 0

    @property
    def next_queue_offset(self) -> int:
        return self.base_queue_offset + self.message_count


def encode_batch_entry(entry: BatchQueueEntry) -> bytes:
    assert entry.physical_offset >= 0
    assert entry.size_bytes > 0
    assert entry.base_queue_offset >= 0
    assert entry.message_count > 0
    return BATCH_QUEUE_ENTRY.struct.pack(
        entry.physical_offset,
        entry.size_bytes,
        entry.tags_code,
        entry.store_timestamp_ms,
        entry.base_queue_offset,
        entry.message_count,
        entry.compacted_offset,
        entry.reserved,
    )


def decode_batch_entry(buffer: Bytes, position: int = 0) -> BatchQueueEntry | None:
    """Return the unit at `position`, or None if the file is still blank (all zero)."""
    if len(buffer) - position < BATCH_ENTRY_BYTES:
        raise Truncated(
            field="batch queue entry", needed=BATCH_ENTRY_BYTES, got=len(buffer) - position, position=position
        )
    values = BATCH_QUEUE_ENTRY.struct.unpack_from(buffer, position)
    if not any(values):
        return None
    entry = BatchQueueEntry(*values)
    if min(entry.physical_offset, entry.base_queue_offset) < 0 or min(entry.size_bytes, entry.message_count) <= 0:
        raise BadField(f"is invalid: {entry}", field="batch queue entry", position=position)
    return entry


def scan_batch_entries(buffer: Bytes, start: int = 0) -> Iterator[BatchQueueEntry]:
    """Yield units from `start` up to the first blank one or the end of the bytes."""
    for position in range(start, len(buffer) - BATCH_ENTRY_BYTES + 1, BATCH_ENTRY_BYTES):
        entry = decode_batch_entry(buffer, position)
        if entry is None:
            return
        yield entry
