from __future__ import annotations

from dataclasses import dataclass

import pytest

from orbitlog.errors import BadRequest
from orbitlog.wire.header_codec import Header, NoHeader, boolean, double, integer, long, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Header):
    name: str = text("name")
    queue_id: int = integer("queueId")
    position: int = long("position", -1)
    share: float | None = double("share", None)
    ordered: bool = boolean("order", False)
    note: str | None = text("note", None)


WHOLE = {"name": "n", "queueId": "3", "position": "9223372036854775807", "share": "0.5", "order": "true", "note": ""}


def test_header_is_encoded_and_decoded() -> None:
    header = Sample.from_ext_fields(WHOLE)
    assert header == Sample(name="n", queue_id=3, position=2**63 - 1, share=0.5, ordered=True, note="")
    assert header.to_ext_fields() == WHOLE


def test_absent_field_has_its_default_and_null_is_omitted() -> None:
    header = Sample.from_ext_fields({"name": "n", "queueId": "3", "bname": "ignored"})
    assert header == Sample(name="n", queue_id=3)
    assert header.to_ext_fields() == {"name": "n", "queueId": "3", "position": "-1", "order": "false"}


@pytest.mark.parametrize("name", ["name", "queueId"])
def test_missing_field_is_named(name: str) -> None:
    fields = {key: value for key, value in WHOLE.items() if key != name}
    with pytest.raises(BadRequest, match=f"the custom field <{name}> is null") as caught:
        Sample.from_ext_fields(fields)
    assert (caught.value.field, caught.value.code) == (name, 1)


@pytest.mark.parametrize(("spelled", "value"), [("+7", 7), ("-7", -7), ("007", 7), ("-2147483648", -(2**31))])
def test_numbers_are_parsed_like_java(spelled: str, value: int) -> None:
    assert Sample.from_ext_fields({**WHOLE, "queueId": spelled}).queue_id == value


@pytest.mark.parametrize(
    "spelled", ["", " 7", "7 ", "1_000", "0x7", "7.0", "2147483648", "\u0667", "9" * 5000, "+", "null"]
)
def test_invalid_number_raises(spelled: str) -> None:
    with pytest.raises(BadRequest, match="the custom field <queueId> is not a valid int") as caught:
        Sample.from_ext_fields({**WHOLE, "queueId": spelled})
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("spelled", ["", "nan", "1e9999", "0x1p3", "1.2.3", "9" * 1000])
def test_invalid_double_raises(spelled: str) -> None:
    with pytest.raises(BadRequest, match="is not a valid double"):
        Sample.from_ext_fields({**WHOLE, "share": spelled})


@pytest.mark.parametrize(
    ("spelled", "value"), [("TRUE", True), ("True", True), ("1", False), ("yes", False), ("", False)]
)
def test_booleans_are_parsed_like_java(spelled: str, value: bool) -> None:
    assert Sample.from_ext_fields({**WHOLE, "order": spelled}).ordered is value


def test_no_header_has_no_fields() -> None:
    assert NoHeader.from_ext_fields({"a": "b"}).to_ext_fields() == {}
