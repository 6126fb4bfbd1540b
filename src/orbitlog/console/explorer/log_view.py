"""The log of a store: records from an offset on with damaged ranges, and one record as fields and bytes."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.client.consumer.received import Received
from orbitlog.console.explorer.store_reading import store_files
from orbitlog.console.views.answers import Answer, ConsoleError, NoQuery
from orbitlog.console.views.message_rows import MessageDetail, MessageRow, ascii_column, message_detail, message_row
from orbitlog.errors import FormatError
from orbitlog.formats.records.message import decode_message
from orbitlog.formats.records.record_layout import IPV6_BITS, RECORD_PREFIX, RECORD_PREFIXES
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.log_walk import LogWalk
from orbitlog.storefiles.mapped_view import mapped_view
from orbitlog.storefiles.store_inference import infer_segment_bytes
from orbitlog.storefiles.store_log import committed_end

_LOOKED_AT_MAX = 20_000
_DAMAGES_SHOWN = 50
_RECORD_BYTES_MAX = 1 << 25
_HEX_BYTES_MAX = 4096


class LogQuery(NoQuery, kw_only=True):
    """Where to start, and which topic."""

    start: Annotated[int, Meta(ge=0, description="Physical offset")] = 0
    topic: Annotated[str, Meta(max_length=255)] = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class LogListing(Answer, kw_only=True):
    """Records of the log; `next` is the physical offset to continue at."""

    store: str
    items: list[MessageRow]
    damage: list[str]
    looked_at: int
    next: int | None


class RecordField(Answer, kw_only=True):
    """One field of a record: its position, size, value and meaning."""

    name: str
    position: int
    size: int
    value: str
    meaning: str


class HexLine(Answer, kw_only=True):
    """Sixteen bytes."""

    position: int
    hex: str
    text: str


class RecordAnswer(Answer, kw_only=True):
    """One record as fields and bytes, side by side."""

    store: str
    physical_offset: int
    segment: str
    size: int
    fields: list[RecordField]
    bytes: list[HexLine]
    is_cut: bool
    detail: MessageDetail | None
    problem: str | None = None
    columns: list[str] = msgspec.field(default_factory=list)


def list_records(stores: dict[str, Path], name: str, query: LogQuery) -> LogListing:
    found = store_files(stores, name)
    segment_bytes = infer_segment_bytes(found.segments, StoreSettings())
    walk = LogWalk(found.segments, segment_bytes, start=query.start, committed_end=committed_end(found))
    rows: list[MessageRow] = []
    looked_at, end = 0, None
    with closing(walk.records()) as records:
        for message, size_bytes in islice(records, _LOOKED_AT_MAX):
            looked_at += 1
            end = message.physical_offset + size_bytes
            if query.topic in ("", message.topic):
                rows.append(message_row(Received(message, "")))
            if len(rows) == query.limit:
                break
    is_more = len(rows) == query.limit or looked_at == _LOOKED_AT_MAX
    damage = [str(damage) for damage in walk.damage[:_DAMAGES_SHOWN]]
    return LogListing(store=name, items=rows, damage=damage, looked_at=looked_at, next=end if is_more else None)


def show_record(stores: dict[str, Path], name: str, physical_offset: int) -> RecordAnswer:
    """Return one record; of a damaged one only fields and bytes."""
    found = store_files(stores, name)
    segment = found.segment_at(physical_offset)
    if segment is None:
        raise ConsoleError(404, f"the log has no physical offset {physical_offset}")
    with mapped_view(segment.path) as view:
        position = physical_offset - segment.base
        prefix_end = position + RECORD_PREFIX.struct.size
        if prefix_end > len(view):
            raise ConsoleError(404, f"a record does not fit between {physical_offset} and the end of its segment")
        size = int.from_bytes(view[position : position + 4], "big", signed=True)
        size = size if 0 < size <= min(_RECORD_BYTES_MAX, len(view) - position) else min(256, len(view) - position)
        record = bytes(view[position : position + size])
    detail, problem = None, None
    try:
        detail = message_detail(Received(decode_message(record, 0), ""))
    except FormatError as error:
        problem = str(error)
    return RecordAnswer(
        store=name,
        physical_offset=physical_offset,
        segment=segment.path.name,
        size=size,
        fields=_fields(record),
        bytes=_hex(record),
        is_cut=size > _HEX_BYTES_MAX,
        detail=detail,
        problem=problem,
    )


def _fields(record: bytes) -> list[RecordField]:
    """Return the fields of the fixed part of a record, from the declared layout."""
    at = RECORD_PREFIX.position("sys_flag")
    layout = RECORD_PREFIXES[int.from_bytes(record[at : at + 4], "big") & IPV6_BITS]
    values = layout.struct.unpack_from(record) if len(record) >= layout.struct.size else ()
    rows = []
    for field, value in zip(layout.fields, values, strict=False):
        shown = value.hex(" ") if isinstance(value, bytes) else str(value)
        rows.append(
            RecordField(
                name=field.name,
                position=layout.position(field.name),
                size=field.size_bytes,
                value=shown,
                meaning=field.meaning,
            )
        )
    return rows


def _hex(record: bytes) -> list[HexLine]:
    lines = []
    for start in range(0, min(len(record), _HEX_BYTES_MAX), 16):
        part = record[start : start + 16]
        lines.append(HexLine(position=start, hex=part.hex(" "), text=ascii_column(part)))
    return lines
