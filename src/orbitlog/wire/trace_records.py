"""Message traces: what producers and consumers write down about a message, in the topic for traces.

Records are fields with 0x01 between them, each record ends with 0x02; many are the body of one message, whose keys are
the ids that they tell of. Mirrors Java `TraceDataEncoder`.
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
    """One line of a message's life; what a kind of record does not say is left as it is here."""

    kind: str
    message_id: str
    timestamp_ms: int = 0
    group: str = ""
    topic: str = ""
    region: str = ""
    tags: str = ""
    keys: str = ""
    host: str = ""
    """The broker that a message went to."""
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
    """Read the records of one trace message; those that make no sense are passed over, as Java's tools do."""
    found: list[TraceRecord] = []
    for line in body.decode(errors="replace").split(RECORD_END)[:_RECORDS_MAX]:
        fields = ["" if each == _NULL else each for each in line.split(FIELD_END)]
        reader = _READERS.get(fields[0])
        record = reader(fields) if reader is not None else None
        if record is not None:
            found.append(record)
    return found


def _pub(fields: Sequence[str]) -> TraceRecord | None:
    if len(fields) < _PUB_FIELDS_MIN:
        return None
    # 4.x before 4.3 had no offset id: its 13th field is already the outcome.
    has_id = len(fields) >= _PUB_FIELDS_WITH_ID
    outcome = fields[13] if has_id else (fields[12] if len(fields) > 12 else "true")
    return TraceRecord(
        PUB,
        fields[5],
        _number(fields[1]),
        fields[3],
        fields[4],
        fields[2],
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
        fields[5],
        _number(fields[1]),
        fields[3],
        fields[4],
        fields[2],
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
    success = fields[6] == "true"
    return TraceRecord(RECALL, fields[5], _number(fields[1]), fields[3], fields[4], fields[2], success=success)


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
    """Write records as Java's tools read them."""
    return "".join(FIELD_END.join(map(_clean, _WRITERS[each.kind](each))) + RECORD_END for each in records).encode()


def _clean(field: object) -> str:
    text = ("true" if field else "false") if isinstance(field, bool) else str(field)
    return text.replace(FIELD_END, " ").replace(RECORD_END, " ") or _NULL


def _pub_fields(each: TraceRecord) -> Sequence[object]:
    head = (PUB, each.timestamp_ms, each.region, each.group, each.topic, each.message_id, each.tags, each.keys)
    tail = (each.body_bytes, each.cost_ms, each.message_type, each.offset_message_id, each.success)
    return (*head, each.host, *tail)


def _sub_before_fields(each: TraceRecord) -> Sequence[object]:
    head = (SUB_BEFORE, each.timestamp_ms, each.region, each.group, each.request_id)
    return (*head, each.message_id, each.retry_times, each.keys)


def _sub_after_fields(each: TraceRecord) -> Sequence[object]:
    head = (SUB_AFTER, each.request_id, each.message_id, each.cost_ms, each.success, each.keys)
    return (*head, each.result, each.timestamp_ms, each.group)


_WRITERS = {PUB: _pub_fields, SUB_BEFORE: _sub_before_fields, SUB_AFTER: _sub_after_fields}
