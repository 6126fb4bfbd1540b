"""Dispatch marks and lease: the owner of dispatch and its progress, in small files that Java ignores.

The lease is a text file: it names the owner, and its epoch grows with each change of ownership. The marks are a mapped
file that changes many times a second: the broker writes which engine it wants, the owner its progress. A mark is
written over the older of two, with a checksum, so that a reader always finds a complete one. Marks are not synced:
after a power cut only the state file is used.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field, replace
from typing import Any
from zlib import crc32

from orbitlog.errors import BadField, ChecksumMismatch, LimitExceeded, Truncated
from orbitlog.formats.derived.index_layout import IndexHeader
from orbitlog.formats.java import INT_MAX, LONG_MAX
from orbitlog.formats.layout import Field, Layout
from orbitlog.formats.records.message import Bytes

LEASE_FILE = "orbitlog.lease"
LEASE_LOCK_FILE = "orbitlog.lease-lock"
MARKS_FILE = "orbitlog.dispatched"
INLINE = "inline"
"""The broker itself."""

DISPATCH_WANTED = Layout(
    "Orbitlog dispatch marks, head",
    Field("wanted", "i64", "written by the broker: 0, it dispatches itself or wants to; 1, an engine outside may"),
)
DISPATCH_MARK = Layout(
    "Orbitlog dispatch mark",
    Field("crc", "u32", "CRC-32 of the fields that follow"),
    Field("index_skip_keys", "i32", "keys of the message at index_from that are in the index already"),
    Field("epoch", "i64", "of the lease under which it was written"),
    Field("sequence", "i64", "grows with each mark; the higher of the two counts"),
    Field("dispatched_to", "i64", "physical offset before which every record has its unit and its keys"),
    Field("index_from", "i64", "physical offset from which keys are put; those before are in the index"),
    Field("unit_count", "i64", "sum over all queues of the units ever put"),
    Field("last_store_timestamp_ms", "i64", "of the last message dispatched"),
    Field("last_physical_offset", "i64", "of the last message dispatched"),
    Field("index_file", "i64", "name of the last index file as a number, 0 without one"),
    Field("begin_timestamp_ms", "i64", "header of that file at this moment, as in IndexFile"),
    Field("end_timestamp_ms", "i64", "the same"),
    Field("begin_physical_offset", "i64", "the same"),
    Field("end_physical_offset", "i64", "the same"),
    Field("hash_slot_count", "i32", "the same"),
    Field("index_count", "i32", "the same"),
)
_FIRST_MARK = 64
_MARK_ROOM = 128
MARKS_BYTES = _FIRST_MARK + 2 * _MARK_ROOM
assert DISPATCH_MARK.size_bytes <= _MARK_ROOM

_LEASE_BYTES_MAX = 64 * 1024
_TEXT_MAX = 200


@dataclass(frozen=True, slots=True)
class DispatchMark:
    """Progress of dispatch: what the next owner needs to continue without a gap and without a duplicate key."""

    dispatched_to: int = 0
    index_from: int = 0
    index_skip_keys: int = 0
    unit_count: int = 0
    last_store_timestamp_ms: int = 0
    last_physical_offset: int = 0
    index_file: int = 0
    index_header: IndexHeader = field(default_factory=IndexHeader)
    epoch: int = 0
    sequence: int = 0


def mark_position(sequence: int) -> int:
    """Return the position of a mark in the file: never that of the mark before it."""
    return _FIRST_MARK + sequence % 2 * _MARK_ROOM


def encode_mark(mark: DispatchMark) -> bytes:
    raw = DISPATCH_MARK.struct.pack(
        0,
        mark.index_skip_keys,
        mark.epoch,
        mark.sequence,
        mark.dispatched_to,
        mark.index_from,
        mark.unit_count,
        mark.last_store_timestamp_ms,
        mark.last_physical_offset,
        mark.index_file,
        *astuple(mark.index_header),
    )
    return crc32(raw[4:]).to_bytes(4, "big") + raw[4:]


def decode_mark(raw: Bytes) -> DispatchMark:
    if len(raw) < DISPATCH_MARK.size_bytes:
        raise Truncated(field="dispatch mark", needed=DISPATCH_MARK.size_bytes, got=len(raw))
    stored, skip_keys, epoch, sequence, dispatched_to, index_from, *rest = DISPATCH_MARK.struct.unpack_from(raw)
    computed = crc32(bytes(raw[4 : DISPATCH_MARK.size_bytes]))
    if computed != stored:
        raise ChecksumMismatch(field="dispatch mark", stored=stored, computed=computed)
    unit_count, last_ms, last_physical_offset, index_file, *header = rest
    return DispatchMark(
        dispatched_to=dispatched_to,
        index_from=index_from,
        index_skip_keys=skip_keys,
        unit_count=unit_count,
        last_store_timestamp_ms=last_ms,
        last_physical_offset=last_physical_offset,
        index_file=index_file,
        index_header=IndexHeader(*header),
        epoch=epoch,
        sequence=sequence,
    )


def newest_mark(raw: Bytes) -> DispatchMark | None:
    """Return the newest valid mark of a file, or None if neither is valid."""
    found: list[DispatchMark] = []
    for sequence in (0, 1):
        position = mark_position(sequence)
        try:
            found.append(decode_mark(raw[position : position + DISPATCH_MARK.size_bytes]))
        except (Truncated, ChecksumMismatch):
            continue
    return max(found, key=lambda mark: (mark.epoch, mark.sequence), default=None)


@dataclass(frozen=True, slots=True)
class DispatchLease:
    """The one owner of dispatch. `is_released`: it handed over in good order, and its last mark is exact."""

    engine: str = INLINE
    epoch: int = 0
    owner: str = ""
    process_id: int = 0
    host: str = ""
    dispatched_to: int = 0
    is_released: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    """Java settings that decide the bytes of the derived files; every dispatching process uses them."""

    def __str__(self) -> str:
        return f"engine {self.engine}, process {self.process_id} on {self.host or 'this host'}, epoch {self.epoch}"

    def released(self, dispatched_to: int) -> DispatchLease:
        return replace(self, dispatched_to=dispatched_to, is_released=True)


_JSON_NAMES = {
    "engine": ("engine", str),
    "epoch": ("epoch", int),
    "owner": ("owner", str),
    "processId": ("process_id", int),
    "host": ("host", str),
    "dispatchedTo": ("dispatched_to", int),
    "isReleased": ("is_released", bool),
    "settings": ("settings", dict),
}


def encode_lease(lease: DispatchLease) -> bytes:
    fields = {name: getattr(lease, attribute) for name, (attribute, _) in _JSON_NAMES.items()}
    return (json.dumps(fields) + "\n").encode()


def decode_lease(raw: Bytes) -> DispatchLease:
    if len(raw) > _LEASE_BYTES_MAX:
        raise LimitExceeded(field="dispatch lease", limit=_LEASE_BYTES_MAX, got=len(raw))
    try:
        fields = json.loads(bytes(raw))
    except (ValueError, RecursionError):
        raise BadField("is no JSON", field="dispatch lease") from None
    if not isinstance(fields, dict):
        raise BadField("is not a JSON object", field="dispatch lease")
    values: dict[str, Any] = {}
    for name, (attribute, kind) in _JSON_NAMES.items():
        value = fields.get(name)
        if type(value) is not kind or (isinstance(value, str) and len(value) > _TEXT_MAX):
            raise BadField(f"{name} is {str(value)[:40]!r}", field="dispatch lease")
        values[attribute] = value
    lease = DispatchLease(**values)
    if not (0 <= lease.epoch <= LONG_MAX and 0 <= lease.dispatched_to <= LONG_MAX and 0 <= lease.process_id <= INT_MAX):
        raise BadField(f"invalid: {lease.epoch}, {lease.dispatched_to}, {lease.process_id}", field="dispatch lease")
    if not all(isinstance(value, str) for value in lease.settings.values()):
        raise BadField("has settings that are no text", field="dispatch lease")
    return lease
