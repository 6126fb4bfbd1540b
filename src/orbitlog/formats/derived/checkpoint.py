"""Checkpoint: the timestamps and offsets up to which log, queues and index were durable when it was written.

One page; the rest of it is zero. A missing or zero checkpoint is always safe: it means "scan everything".
Mirrors Java `StoreCheckpoint`. Which fields a version uses stands in `compat`.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from orbitlog.errors import Truncated
from orbitlog.formats.compat import Compat
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

CHECKPOINT = Layout(
    "Checkpoint",
    Field("physic_msg_timestamp_ms", "i64", "store time of the last message flushed in the CommitLog"),
    Field("logics_msg_timestamp_ms", "i64", "store time of the last message flushed in the ConsumeQueues"),
    Field("index_msg_timestamp_ms", "i64", "end time of the last IndexFile that is complete and flushed"),
    Field("master_flushed_physical_offset", "i64", "5.x: physical offset to which the master's log was flushed"),
    Field("confirm_physical_offset", "i64", "5.x: physical offset to which replicas confirmed the log"),
    Field("logics_physical_offset", "i64", "5.5: physical offset of the last message flushed in the ConsumeQueues"),
)
CHECKPOINT_BYTES = 4096
SAFETY_MARGIN_MS = 3_000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    physic_msg_timestamp_ms: int = 0
    logics_msg_timestamp_ms: int = 0
    index_msg_timestamp_ms: int = 0
    master_flushed_physical_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp_ms(self) -> int:
        """Records stored up to here are on disk in log and queues, with a margin."""
        return max(0, min(self.physic_msg_timestamp_ms, self.logics_msg_timestamp_ms) - SAFETY_MARGIN_MS)

    @property
    def min_timestamp_index_ms(self) -> int:
        """The same with the index."""
        return min(self.min_timestamp_ms, self.index_msg_timestamp_ms)


def encode_checkpoint(checkpoint: Checkpoint, compat: Compat) -> bytes:
    """Return the whole file; fields that the version does not have stay zero."""
    values = (
        value if field.name in compat.checkpoint_fields else 0
        for field, value in zip(CHECKPOINT.fields, astuple(checkpoint), strict=True)
    )
    return CHECKPOINT.struct.pack(*values).ljust(CHECKPOINT_BYTES, b"\0")


def decode_checkpoint(buffer: Bytes) -> Checkpoint:
    """Read a checkpoint file of any version."""
    if len(buffer) < CHECKPOINT.size_bytes:
        raise Truncated(field="checkpoint", needed=CHECKPOINT.size_bytes, got=len(buffer))
    return Checkpoint(*CHECKPOINT.struct.unpack_from(buffer))
