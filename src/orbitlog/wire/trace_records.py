"""Message traces: records that producers and consumers send about a message, to the trace topic.

The fields of a record are separated by 0x01, and each record ends with 0x02. One trace message contains many records;
its keys are the ids of the traced messages. Mirrors Java `TraceDataEncoder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FIELD_END = "\x01"
RECORD_END = "\x02"
PUB, SUB_BEFORE, SUB_AFTER = "Pub", "SubBefore", "SubAfter"
END_TRANSACTION, RECALL = "EndTransaction", "Recall"
MESSAGE_TYPES = ("normal", "half", "commit", "delayed", "ordered")
CONSUME_RESULTS = ("success", "timed out", "exception", "returned nothing", "failed")

_RECORDS_MAX = 10_000
_NULL = "null"
_PUB_FIELDS_MIN = 12
_PUB_FIELDS_WITH_ID = 14


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One trace record; fields that its kind does not have keep their default."""

    kind: str
    message_id: str
    timestamp_ms: int = 0
    group: str = ""
    topic: str = ""
    region: str = ""
    tags: str = ""
    keys: str = ""
    host: str = ""
    """The broker that stored the message."""
    body_bytes: int = 0
    cost_ms: int = 0
    success: bool = True
    message_type: int = 0
    offset_message_id: str = ""
    request_id: str = ""
    retry_times: int = 0
    result: int = 0
    transaction_state: str = ""
    from_check: bool = False


def decode_trace(body: bytes) -> list[TraceRecord]:
    """Decode the records of one trace message; invalid ones are skipped, as Java's tools do."""
    records: list[TraceRecord] = []
    for line in body.decode(errors="replace").split(RECORD_END)[:_RECORDS_MAX]:
        fields = ["" if field == _NULL else field for field in line.split(FIELD_END)]
        reader = _READERS.get(fields[0])
        record = reader(fields) if reader is not None else None
        if record is not None:
            records.append(record)
    return records


def _pub(fields: Sequence[str]) -> TraceRecord | None:
    if len(fields) < _PUB_FIELDS_MIN:
        return None
    # 4.x before 4.3 had no offset id: its 13th field is already the outcome.
    has_id = len(fields) >= _PUB_FIELDS_WITH_ID
    outcome = fields[13] if has_id else (fields[12] if len(fields) > 12 else "true")
    return TraceRecord(
        PUB,
        *_start(fields),
        fields[6],
        fields[7],
        fields[8],
        _number(fields[9]),
        _number(fields[10]),
        success=outcome == "true",
        message_type=_number(fields[11]),
        offset_message_id=fields[12] if has_id else "",
    )


def _sub_before(fields: Sequence[str]) -> TraceRecord | None:
    if len(fields) < 8:
        return None
    return TraceRecord(
        SUB_BEFORE,
        fields[5],
        _number(fields[1]),
        fields[3],
        region=fields[2],
        keys=fields[7],
        request_id=fields[4],
        retry_times=_number(fields[6]),
    )


def _sub_after(fields: Sequence[str]) -> TraceRecord | None:
    if len(fields) < 6:
        return None
    return TraceRecord(
        SUB_AFTER,
        fields[2],
        _number(fields[7]) if len(fields) > 7 else 0,
        fields[8] if len(fields) > 8 else "",
        keys=fields[5],
        cost_ms=_number(fields[3]),
        success=fields[4] == "true",
        request_id=fields[1],
        result=_number(fields[6]) if len(fields) > 6 else 0,
    )


def _end_transaction(fields: Sequence[str]) -> TraceRecord | None:
    if len(fields) < 13:
        return None
    return TraceRecord(
        END_TRANSACTION,
        *_start(fields),
        fields[6],
        fields[7],
        fields[8],
        message_type=_number(fields[9]),
        transaction_state=fields[11],
        from_check=fields[12] == "true",
    )


def _recall(fields: Sequence[str]) -> TraceRecord | None:
    if len(fields) < 7:
        return None
    return TraceRecord(RECALL, *_start(fields), success=fields[6] == "true")


def _start(fields: Sequence[str]) -> tuple[str, int, str, str, str]:
    """Return message id, timestamp, group, topic and region, which three kinds have at the same positions."""
    return fields[5], _number(fields[1]), fields[3], fields[4], fields[2]


_READERS = {
    PUB: _pub,
    SUB_BEFORE: _sub_before,
    SUB_AFTER: _sub_after,
    END_TRANSACTION: _end_transaction,
    RECALL: _recall,
}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def encode_trace(records: Iterable[TraceRecord]) -> bytes:
    """Encode records in the form that Java's tools read."""
    texts = (FIELD_END.join(map(_clean, _WRITERS[record.kind](record))) + RECORD_END for record in records)
    return "".join(texts).encode()


def _clean(field: object) -> str:
    text = ("true" if field else "false") if isinstance(field, bool) else str(field)
    return text.replace(FIELD_END, " ").replace(RECORD_END, " ") or _NULL


def _pub_fields(record: TraceRecord) -> Sequence[object]:
    head = (
        PUB,
        record.timestamp_ms,
        record.region,
        record.group,
        record.topic,
        record.message_id,
        record.tags,
        record.keys,
    )
    tail = (record.body_bytes, record.cost_ms, record.message_type, record.offset_message_id, record.success)
    return (*head, record.host, *tail)


def _sub_before_fields(record: TraceRecord) -> Sequence[object]:
    head = (SUB_BEFORE, record.timestamp_ms, record.region, record.group, record.request_id)
    return (*head, record.message_id, record.retry_times, record.keys)


def _sub_after_fields(record: TraceRecord) -> Sequence[object]:
    head = (SUB_AFTER, record.request_id, record.message_id, record.cost_ms, record.success, record.keys)
    return (*head, record.result, record.timestamp_ms, record.group)


_WRITERS = {PUB: _pub_fields, SUB_BEFORE: _sub_before_fields, SUB_AFTER: _sub_after_fields}
