"""Trace records, as Java's `TraceDataEncoder` writes them."""

from __future__ import annotations

import pytest

from orbitlog.wire.trace_records import (
    END_TRANSACTION,
    PUB,
    RECALL,
    SUB_AFTER,
    SUB_BEFORE,
    TraceRecord,
    decode_trace,
    encode_trace,
)


def line(*fields: str) -> bytes:
    return "\x01".join(fields).encode() + b"\x02"


PUB_FIELDS = (
    "Pub",
    "1700",
    "region",
    "P",
    "T",
    "ID",
    "tag",
    "k1 k2",
    "127.0.0.1:10911",
    "5",
    "3",
    "3",
    "OFFSETID",
    "true",
)


@pytest.mark.parametrize(
    "record",
    [
        TraceRecord(PUB, "ID", 1700, "P", "T", "r", "t", "k", "h:1", 5, 3, False, 3, "O"),
        TraceRecord(SUB_BEFORE, "ID", 1700, "G", region="r", keys="k", request_id="R", retry_times=2),
        TraceRecord(SUB_AFTER, "ID", 1700, "G", keys="k", cost_ms=3, success=False, request_id="R", result=4),
    ],
)
def test_records_are_encoded_and_decoded(record: TraceRecord) -> None:
    assert decode_trace(encode_trace([record, record])) == [record, record]


def test_records_of_java_are_decoded() -> None:
    (pub,) = decode_trace(line(*PUB_FIELDS))
    assert (pub.topic, pub.message_id, pub.cost_ms, pub.message_type, pub.offset_message_id) == (
        "T",
        "ID",
        3,
        3,
        "OFFSETID",
    )
    assert encode_trace([pub]) == line(*PUB_FIELDS)
    (go,) = decode_trace(line(*PUB_FIELDS, "10.0.0.1"))
    assert go == pub
    (old,) = decode_trace(line(*PUB_FIELDS[:12], "false"))
    assert not old.success and old.offset_message_id == ""
    (cloud,) = decode_trace(line("SubAfter", "R", "ID", "3", "true", "null", "0"))
    assert (cloud.group, cloud.timestamp_ms, cloud.keys) == ("", 0, "")
    ended = ("EndTransaction", "1", "r", "P", "T", "ID", "", "", "h", "2", "TID", "COMMIT_MESSAGE", "true")
    (end,) = decode_trace(line(*ended))
    assert (end.kind, end.transaction_state, end.from_check) == (END_TRANSACTION, "COMMIT_MESSAGE", True)
    (recall,) = decode_trace(line("Recall", "1", "r", "P", "T", "ID", "true"))
    assert (recall.kind, recall.success) == (RECALL, True)


@pytest.mark.parametrize("kind", [PUB, SUB_BEFORE, SUB_AFTER, END_TRANSACTION, RECALL, "Other", ""])
def test_truncated_record_is_skipped(kind: str) -> None:
    assert decode_trace(line(kind, "1")) == []
    assert decode_trace(b"\xff\x01\x02") == []


def test_separator_inside_a_field_is_replaced() -> None:
    (record,) = decode_trace(encode_trace([TraceRecord(PUB, "ID", keys="a\x01b\x02c")]))
    assert record.keys == "a b c"
