"""Store state: Orbitlog's own file about derived files, more precise than Java's checkpoint.

The checkpoint gives times, in steps of a flush, and only 5.5's an offset. This file records up to which physical offset
every queue unit is durable, and the number of units. It is valid only with the checkpoint that was saved with it: a
Java broker that used the store meanwhile wrote another checkpoint. Java ignores the file.

It ends with a checksum of the last record, properties included: no field of the record covers those. Earlier versions
of Orbitlog did not write that part, and ignore it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from zlib import crc32

from orbitlog.errors import BadField, BadMagic, ChecksumMismatch, Truncated
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

STATE_FILE = "orbitlog.state"
CONFIRMED_FILE = "orbitlog.confirmed"
RECOVERY_FILE = "orbitlog.recovery"
REPLICA_FILE = "orbitlog.replica"
"""Exists while a slave has the store open: another broker wrote the end of its log."""
GROUP_DIRECTORY = "orbitlog.group"
"""Files of a member of a replica group: its epochs, the boot at which it last started, and tails that it gave up."""
EPOCHS_FILE = f"{GROUP_DIRECTORY}/epochs"
_MAGIC = 0x4F524231  # ORB1
_RECOVERY_MAGIC = 0x4F524252  # ORBR
_NOTE = "recovery note"
_LAST = "store state: last record"
KEYS_UNKNOWN = -1

STORE_STATE = Layout(
    "Orbitlog state",
    Field("magic", "u32", f"0x{_MAGIC:08X}"),
    Field("crc", "u32", "CRC-32 of the fields that follow"),
    Field("dispatched_to", "i64", "physical offset up to which every queue unit and index key is durable"),
    Field("unit_count", "i64", "sum over all queues of the units ever put, at that moment"),
    Field("queue_count", "i64", "number of queues, at that moment"),
    Field("key_count", "i64", "number of keys in all index files, at that moment; -1 while they are being rebuilt"),
    Field("physic_msg_timestamp_ms", "i64", "of the checkpoint that was written with this file"),
    Field("logics_msg_timestamp_ms", "i64", "of the checkpoint that was written with this file"),
)
LAST_RECORD = Layout(
    "Orbitlog state: last record",
    Field("crc", "u32", "CRC-32 of the fields that follow"),
    Field("record_crc", "u32", "CRC-32 of all bytes of the record, properties included"),
    Field("physical_offset", "i64", "of the last record before `dispatched_to`; -1 without one"),
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
    Field("created_count", "i64", "number of queues that follow, each as queue id (u32), length (u32) and topic"),
)
_CREATED_QUEUE = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record that a state file covers, with the CRC-32 of all its bytes."""

    physical_offset: int
    record_crc: int

    @classmethod
    def of(cls, physical_offset: int, record: Bytes) -> LastRecord:
        return cls(physical_offset, crc32(record))

    def is_in(self, record: Bytes) -> bool:
        """Return whether these bytes are the record's."""
        return crc32(record) == self.record_crc


@dataclass(frozen=True, slots=True)
class StoreState:
    dispatched_to: int
    unit_count: int
    queue_count: int
    key_count: int
    physic_msg_timestamp_ms: int
    logics_msg_timestamp_ms: int
    last_record: LastRecord | None = None
    """None if there is no record, or if an earlier version of Orbitlog wrote the file."""


_NUMBERS = tuple(one.name for one in STORE_STATE.fields[2:])


def encode_state(state: StoreState) -> bytes:
    numbers = STORE_STATE.struct.pack(_MAGIC, 0, *(getattr(state, name) for name in _NUMBERS))
    return _with_crc(numbers) + _encode_last(state.last_record)


def decode_state(raw: Bytes) -> StoreState:
    """Return the state; raise a `FormatError` if a checksum is wrong."""
    numbers = _decode(STORE_STATE, _MAGIC, raw, field="store state")
    last = _decode_last(raw[STORE_STATE.size_bytes :])
    return StoreState(**dict(zip(_NUMBERS, numbers, strict=True)), last_record=last)


def _encode_last(last: LastRecord | None) -> bytes:
    offset, record_crc = (-1, 0) if last is None else (last.physical_offset, last.record_crc)
    fields = LAST_RECORD.struct.pack(0, record_crc, offset)[4:]
    return crc32(fields).to_bytes(4, "big") + fields


def _decode_last(raw: Bytes) -> LastRecord | None:
    if not raw:
        return None  # by an earlier version
    if len(raw) < LAST_RECORD.size_bytes:
        raise Truncated(field=_LAST, needed=LAST_RECORD.size_bytes, got=len(raw))
    stored, record_crc, physical_offset = LAST_RECORD.struct.unpack_from(raw)
    computed = crc32(bytes(raw[4 : LAST_RECORD.size_bytes]))
    if computed != stored:
        raise ChecksumMismatch(field=_LAST, stored=stored, computed=computed)
    return LastRecord(physical_offset, record_crc) if physical_offset >= 0 else None


def _with_crc(raw: bytes) -> bytes:
    return raw[:4] + crc32(raw[8:]).to_bytes(4, "big") + raw[8:]


def _decode(layout: Layout, expected_magic: int, raw: Bytes, *, field: str, is_longer: bool = False) -> list[int]:
    """Return the fields after magic and CRC; raise a `FormatError` that names `field` if one of both is wrong.

    With `is_longer` the CRC covers everything up to the end of `raw`.
    """
    if len(raw) < layout.size_bytes:
        raise Truncated(field=field, needed=layout.size_bytes, got=len(raw))
    magic, stored, *values = layout.struct.unpack_from(raw)
    if magic != expected_magic:
        raise BadMagic(field=field, got=magic)
    computed = crc32(bytes(raw[8:] if is_longer else raw[8 : layout.size_bytes]))
    if computed != stored:
        raise ChecksumMismatch(field=field, stored=stored, computed=computed)
    return values


@dataclass(frozen=True, slots=True)
class RecoveryNote:
    """What showed at the start of a recovery which topics were deleted (`store.recovery.queue_lives.DeletionEvidence`).

    It exists while a store without a valid state file is recovered: an interrupted recovery has changed the files that
    its decisions were based on. `created` are the queues without files that it gives some: they prove nothing.
    """

    dispatched_before: int
    recreated_before: int
    created: tuple[tuple[str, int], ...] = ()


def encode_recovery_note(note: RecoveryNote) -> bytes:
    created = [(queue_id, topic.encode()) for topic, queue_id in note.created]
    values = note.dispatched_before, note.recreated_before, len(created)
    queues = (_CREATED_QUEUE.pack(queue_id, len(topic)) + topic for queue_id, topic in created)
    return _with_crc(RECOVERY_NOTE.struct.pack(_RECOVERY_MAGIC, 0, *values) + b"".join(queues))


def decode_recovery_note(raw: Bytes) -> RecoveryNote:
    """Return the note; raise a `FormatError` unless the CRC of all bytes is right."""
    dispatched_before, recreated_before, count = _decode(
        RECOVERY_NOTE, _RECOVERY_MAGIC, raw, field=_NOTE, is_longer=True
    )
    created: list[tuple[str, int]] = []
    position, content = RECOVERY_NOTE.size_bytes, bytes(raw)
    while position < len(content):
        if len(content) - position < _CREATED_QUEUE.size:
            raise Truncated(field=_NOTE, needed=position + _CREATED_QUEUE.size, got=len(content))
        queue_id, topic_bytes = _CREATED_QUEUE.unpack_from(content, position)
        position += _CREATED_QUEUE.size + topic_bytes
        if position > len(content):
            raise Truncated(field=_NOTE, needed=position, got=len(content))
        created.append((content[position - topic_bytes : position].decode(errors="replace"), queue_id))
    if len(created) != count:
        raise BadField(f"{len(created)} queues follow, {count} are counted", field=_NOTE)
    return RecoveryNote(dispatched_before, recreated_before, tuple(created))
