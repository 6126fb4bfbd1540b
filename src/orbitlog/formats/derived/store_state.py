"""Store state: Orbitlog's own file about derived files, more precise than Java's checkpoint.

The checkpoint gives times, in steps of a flush, and only 5.5's an offset. This file says up to which physical offset
every queue unit is on the disk, and how many there were. It is believed only with the checkpoint that stood beside
it: a Java broker that used the store meanwhile wrote another one. Java ignores the file.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from zlib import crc32

from orbitlog.errors import BadMagic, ChecksumMismatch, Truncated
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

STATE_FILE = "orbitlog.state"
CONFIRMED_FILE = "orbitlog.confirmed"
RECOVERY_FILE = "orbitlog.recovery"
_MAGIC = 0x4F524231  # ORB1
_RECOVERY_MAGIC = 0x4F524252  # ORBR
KEYS_UNKNOWN = -1

STORE_STATE = Layout(
    "Orbitlog state",
    Field("magic", "u32", f"0x{_MAGIC:08X}"),
    Field("crc", "u32", "CRC-32 of the fields that follow"),
    Field("dispatched_to", "i64", "physical offset up to which every queue unit and index key is on the disk"),
    Field("unit_count", "i64", "sum over all queues of the units ever put, at that moment"),
    Field("queue_count", "i64", "number of queues, at that moment"),
    Field("key_count", "i64", "number of keys in all index files, at that moment; -1 while they are made anew"),
    Field("physic_msg_timestamp_ms", "i64", "of the checkpoint that was written with this file"),
    Field("logics_msg_timestamp_ms", "i64", "of the checkpoint that was written with this file"),
)
CONFIRMED = Layout(
    "Orbitlog confirmed offset",
    Field("confirmed_to", "i64", "physical offset up to which others may read the log while the broker runs"),
)
RECOVERY_NOTE = Layout(
    "Orbitlog recovery note",
    Field("magic", "u32", f"0x{_RECOVERY_MAGIC:08X}"),
    Field("crc", "u32", "CRC-32 of the fields that follow"),
    Field("dispatched_before", "i64", "physical offset before which every record had its queue unit at some time"),
    Field("recreated_before", "i64", "physical offset before which records may be of topics that were created again"),
)


@dataclass(frozen=True, slots=True)
class StoreState:
    dispatched_to: int
    unit_count: int
    queue_count: int
    key_count: int
    physic_msg_timestamp_ms: int
    logics_msg_timestamp_ms: int


def encode_state(state: StoreState) -> bytes:
    raw = STORE_STATE.struct.pack(_MAGIC, 0, *astuple(state))
    return raw[:4] + crc32(raw[8:]).to_bytes(4, "big") + raw[8:]


def decode_state(raw: Bytes) -> StoreState:
    if len(raw) < STORE_STATE.size_bytes:
        raise Truncated(field="store state", needed=STORE_STATE.size_bytes, got=len(raw))
    magic, stored, *values = STORE_STATE.struct.unpack_from(raw)
    if magic != _MAGIC:
        raise BadMagic(field="store state", got=magic)
    computed = crc32(bytes(raw[8 : STORE_STATE.size_bytes]))
    if computed != stored:
        raise ChecksumMismatch(field="store state", stored=stored, computed=computed)
    return StoreState(*values)


@dataclass(frozen=True, slots=True)
class RecoveryNote:
    """What showed at the start of a recovery which topics were deleted (`store.recovery.queue_lives.DeletionEvidence`).

    It exists while a store without a valid state file is recovered: an interrupted recovery has changed the files that
    its decisions were based on.
    """

    dispatched_before: int
    recreated_before: int


def encode_recovery_note(note: RecoveryNote) -> bytes:
    raw = RECOVERY_NOTE.struct.pack(_RECOVERY_MAGIC, 0, *astuple(note))
    return raw[:4] + crc32(raw[8:]).to_bytes(4, "big") + raw[8:]


def decode_recovery_note(raw: Bytes) -> RecoveryNote:
    if len(raw) < RECOVERY_NOTE.size_bytes:
        raise Truncated(field="recovery note", needed=RECOVERY_NOTE.size_bytes, got=len(raw))
    magic, stored, *values = RECOVERY_NOTE.struct.unpack_from(raw)
    if magic != _RECOVERY_MAGIC:
        raise BadMagic(field="recovery note", got=magic)
    computed = crc32(bytes(raw[8 : RECOVERY_NOTE.size_bytes]))
    if computed != stored:
        raise ChecksumMismatch(field="recovery note", stored=stored, computed=computed)
    return RecoveryNote(*values)
