"""Receipts, as Java's clients write and read them."""

from __future__ import annotations

import pytest

from orbitlog.errors import FormatError
from orbitlog.wire.pop_receipt import (
    PopReceipt,
    acknowledged_offsets,
    message_offset_info,
    order_count_info,
    parse_receipt,
    real_topic,
    retry_flag,
    start_offset_info,
)

TEXT = "3 1700000000000 60000 7 1 broker-a 2 5"


def test_receipt_is_formatted_and_parsed() -> None:
    receipt = parse_receipt(TEXT)
    assert receipt == PopReceipt(3, 1_700_000_000_000, 60_000, 7, "1", "broker-a", 2, 5)
    assert str(receipt) == TEXT
    assert parse_receipt("3 1700000000000 60000 999 0").is_ordered


@pytest.mark.parametrize("text", ["", "1 2 3 4", "a 2 3 4 0", "-1 2 3 4 0", "9" * 19 + " 2 3 4 0", "1 " * 2_000])
def test_invalid_receipt_raises(text: str) -> None:
    with pytest.raises(FormatError):
        parse_receipt(text)


def test_response_fields_of_a_queue() -> None:
    assert start_offset_info("T", 2, 9) == "0 2 9"
    assert message_offset_info("%RETRY%G_T", 0, (9, 11)) == "1 0 9,11"
    assert order_count_info("T", 2, {9: 1, 10: 3}, 2) == ["0 qo2%9 1", "0 qo2%10 3", "0 2 1"]
    assert order_count_info("T", 2, {9: 1}, 2)[-1] == "0 2 0"


def test_retry_topics_and_acknowledged_bits() -> None:
    assert (real_topic("T", "G", "0"), real_topic("T", "G", "1")) == ("T", "%RETRY%G_T")
    assert real_topic("T", "G", "2") == "%RETRY%G+T"
    assert [retry_flag(topic) for topic in ("T", "%RETRY%G_T", "%RETRY%G+T")] == ["0", "1", "2"]
    assert acknowledged_offsets(100, bytes((0b101, 0, 0b1))) == [100, 102, 116]
    with pytest.raises(FormatError):
        acknowledged_offsets(0, bytes(100_000))
