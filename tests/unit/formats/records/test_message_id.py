from __future__ import annotations

import pytest

from orbitlog.errors import BadField
from orbitlog.formats.hosts import Host
from orbitlog.formats.records.message_id import OffsetMessageId, parse_offset_message_id

LOOPBACK = Host(bytes((127, 0, 0, 1)), 10911)
IPV6 = Host(bytes(15) + b"\1", 10911)

VECTORS = [
    (OffsetMessageId(LOOPBACK, 566), "7F00000100002A9F0000000000000236"),
    (OffsetMessageId(LOOPBACK, 1000), "7F00000100002A9F00000000000003E8"),
    (OffsetMessageId(LOOPBACK, -1), "7F00000100002A9FFFFFFFFFFFFFFFFF"),
    (OffsetMessageId(IPV6, 2**63 - 1), "0000000000000000000000000000000100002A9F7FFFFFFFFFFFFFFF"),
]


@pytest.mark.parametrize(("identity", "text"), VECTORS)
def test_both_directions(identity: OffsetMessageId, text: str) -> None:
    assert str(identity) == text
    assert parse_offset_message_id(text) == identity
    assert parse_offset_message_id(text.lower()) == identity


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "7F00000100002A9F000000000000023",
        "7F00000100002A9F00000000000002360",
        "7F00000100002A9F000000000000023600",
        "7F00000100002A9F00000000000002 3",
        " 7F00000100002A9F000000000000236",
        "7F000001 00002A9F 0000000000000236",
        "7F00000100002A9F000000000000023G",
        "\u0661" * 32,
        "0" * 54,
        "0" * 58,
        "0" * 100_000,
    ],
)
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(BadField) as caught:
        parse_offset_message_id(text)
    assert caught.value.field == "offset message id"
    assert len(str(caught.value)) < 200
