"""config/timercheck: the progress of the timer wheel (5.x).

One page whose rest is zero, rewritten in place. The same fields, without the rest of the page, answer a slave's
request for the master's checkpoint; the oldest form of that answer ends before the data version. Mirrors Java
`TimerCheckpoint`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.errors import Truncated
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

TIMER_CHECKPOINT_FILE = "timercheck"

TIMER_CHECKPOINT = Layout(
    "Timer checkpoint",
    Field("last_read_time_ms", "i64", "slots before this time were delivered"),
    Field("last_log_flush_position", "i64", "the timer log is flushed up to here"),
    Field("last_queue_offset", "i64", "next queue offset of the timer topic to put on the wheel"),
    Field("master_queue_offset", "i64", "the same on the master, for a slave"),
    Field("state_version", "i64", "data version: state of the controller"),
    Field("version_timestamp_ms", "i64", "data version: time of the last change"),
    Field("version_counter", "i64", "data version: number of changes"),
)
TIMER_CHECKPOINT_BYTES = 4096
_WITHOUT_VERSION = TIMER_CHECKPOINT.partial(*(field.name for field in TIMER_CHECKPOINT.fields[:4]))
assert _WITHOUT_VERSION.size == TIMER_CHECKPOINT.position("state_version")


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    last_read_time_ms: int = 0
    last_log_flush_position: int = 0
    last_queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp_ms: int = 0
    version_counter: int = 0


def encode_timer_checkpoint_fields(checkpoint: TimerCheckpoint) -> bytes:
    """Return the fields alone, as they travel between brokers."""
    return TIMER_CHECKPOINT.struct.pack(
        checkpoint.last_read_time_ms,
        checkpoint.last_log_flush_position,
        checkpoint.last_queue_offset,
        checkpoint.master_queue_offset,
        checkpoint.state_version,
        checkpoint.version_timestamp_ms,
        checkpoint.version_counter,
    )


def encode_timer_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """Return the whole file."""
    return encode_timer_checkpoint_fields(checkpoint).ljust(TIMER_CHECKPOINT_BYTES, b"\0")


def decode_timer_checkpoint(buffer: Bytes) -> TimerCheckpoint:
    """Read the file, or the fields as they travel with or without a data version."""
    if len(buffer) >= TIMER_CHECKPOINT.size_bytes:
        return TimerCheckpoint(*TIMER_CHECKPOINT.struct.unpack_from(buffer))
    if len(buffer) != _WITHOUT_VERSION.size:
        raise Truncated(field="timer checkpoint", needed=TIMER_CHECKPOINT.size_bytes, got=len(buffer))
    return TimerCheckpoint(*_WITHOUT_VERSION.unpack_from(buffer))
