"""Messages as rows and in detail, under the JSON names of the command line."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from orbitlog.client.consumer.received import Received
from orbitlog.console.views.answers import Answer
from orbitlog.errors import FormatError

PREVIEW_CHARACTERS = 80
BODY_BYTES_SHOWN = 64 * 1024
HEX_BYTES_SHOWN = 4096
_JSON_BYTES_MAX = 1 << 20
_JSON_DEPTH_MAX = 64


class MessageRow(Answer, kw_only=True):
    """One message in a list."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    msg_id: str
    offset_msg_id: str
    keys: str | None
    tags: str | None
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    body_length: int | None
    preview: str


class MessageBody(Answer, kw_only=True):
    """A body: as text, indented JSON and hex; `is_cut` if only its start is here."""

    length: int | None
    text: str | None
    json: str | None
    hex: str
    is_cut: bool
    problem: str | None = None
    hidden: str | None = None


class MessageDetail(Answer, kw_only=True):
    """One message with its properties and body."""

    message: MessageRow
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    body: MessageBody
    sys_flag: int
    flag: int
    body_crc: int


def message_row(message: Received) -> MessageRow:
    stored = message.stored
    body_length, start = body_start(message)
    return MessageRow(
        topic=stored.topic,
        broker=message.broker_name,
        queue_id=stored.queue_id,
        queue_offset=stored.queue_offset,
        commit_log_offset=stored.physical_offset,
        msg_id=message.message_id,
        offset_msg_id=message.offset_message_id,
        keys=message.properties.get("KEYS"),
        tags=message.tags,
        born_timestamp=stored.born_timestamp_ms,
        store_timestamp=stored.store_timestamp_ms,
        born_host=str(stored.born_host),
        store_host=str(stored.store_host),
        reconsume_times=stored.reconsume_times,
        body_length=body_length,
        preview=start,
    )


def body_start(message: Received) -> tuple[int | None, str]:
    """Return length and preview of a body; no length if it cannot be decompressed."""
    try:
        body = message.body
    except FormatError:
        return None, ""
    return len(body), preview(body)


def preview(body: bytes) -> str:
    """Return the start of a body: as text, or in hexadecimal if it is not text."""
    start = body[: PREVIEW_CHARACTERS * 4]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:
            return "0x " + body[:24].hex(" ")
        text = start[: error.start].decode()
    return text[:PREVIEW_CHARACTERS] + ("…" if len(text) > PREVIEW_CHARACTERS else "")


def message_detail(message: Received) -> MessageDetail:
    stored = message.stored
    return MessageDetail(
        message=message_row(message),
        properties=dict(sorted(message.properties.items())),
        body=_body(message),
        sys_flag=stored.sys_flag,
        flag=stored.flag,
        body_crc=stored.body_crc,
    )


def _body(message: Received) -> MessageBody:
    try:
        body = message.body
    except FormatError as error:
        raw = message.stored.body
        return MessageBody(
            length=None, text=None, json=None, hex=hex_lines(raw), is_cut=len(raw) > HEX_BYTES_SHOWN, problem=str(error)
        )
    shown = body[:BODY_BYTES_SHOWN]
    try:
        text: str | None = shown.decode("utf-8", "strict" if len(body) <= BODY_BYTES_SHOWN else "ignore")
    except UnicodeDecodeError:
        text = None
    return MessageBody(
        length=len(body),
        text=text,
        json=_indented(body),
        hex=hex_lines(body),
        is_cut=len(body) > (BODY_BYTES_SHOWN if text is not None else HEX_BYTES_SHOWN),
    )


def _indented(body: bytes) -> str | None:
    """Return JSON with indentation; None for other bodies, and beyond the limits of size and depth."""
    if len(body) > _JSON_BYTES_MAX or body[:1] not in (b"{", b"["):
        return None
    if max(body.count(b"["), body.count(b"{")) > 100_000:
        return None
    try:
        value = json.loads(body)
        if _depth(value) > _JSON_DEPTH_MAX:
            return None
        return json.dumps(value, indent=2, ensure_ascii=False)[: BODY_BYTES_SHOWN * 2]
    except (ValueError, RecursionError):
        return None


def _depth(value: Any) -> int:
    deepest, pending = 0, [(value, 1)]
    while pending:
        entry, depth = pending.pop()
        deepest = max(deepest, depth)
        if depth > _JSON_DEPTH_MAX:
            return depth
        children = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
        pending += [(child, depth + 1) for child in children]
    return deepest


def ascii_column(data: bytes) -> str:
    """Return the text beside a hex dump: a dot for each byte that is not a printable ASCII character."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def hex_lines(data: bytes) -> str:
    """Return bytes as lines of offset, 16 bytes and their ASCII characters."""
    lines = []
    for start in range(0, min(len(data), HEX_BYTES_SHOWN), 16):
        part = data[start : start + 16]
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {ascii_column(part)}")
    return "\n".join(lines)
