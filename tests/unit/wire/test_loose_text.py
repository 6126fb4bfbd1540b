from __future__ import annotations

import pytest

from orbitlog.errors import FormatError
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.loose_text import read_loosely


def read(data: bytes) -> object:
    return read_loosely(data, bytes_max=1000, values_max=100, depth_max=8)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (rb'{"a":"\ud800","\uDC00":["x\udfffy",1,null]}', {"a": "?", "?": ["x?y", 1, None]}),
        (rb'{"pair":"\ud83d\ude00"}', {"pair": "\U0001f600"}),
        (b'{0:"\xff"}', {0: "\ufffd"}),
    ],
)
def test_loose_text_can_be_encoded(data: bytes, value: object) -> None:
    assert read(data) == value
    write_body(value)  # type: ignore[arg-type]


def test_limits_are_enforced() -> None:
    for data in (b"[" * 9 + b"]" * 9, b'"' + b"x" * 1000 + b'"', b""):
        with pytest.raises(FormatError):
            read(data)
