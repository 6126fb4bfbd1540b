"""A header pattern matches headers that differ in the given values only."""

from __future__ import annotations

import pytest

from orbitlog.wire.header_patterns import OPAQUE_MARK, OPAQUE_VALUE, header_pattern

VALUES = {OPAQUE_MARK: OPAQUE_VALUE, b'"e":"': rb"([0-9]{1,5})", b'"i":': rb'("[^"]*")'}
HEADER = b'{"code":310,"extFields":{"b":"T.","e":"3","i":"KEYS"},"opaque":17}'


def values_in(header: bytes) -> tuple[bytes, ...] | None:
    pattern = header_pattern(HEADER, VALUES)
    assert pattern is not None
    match = pattern.match(header)
    return None if match is None else match.group(*pattern.groups)


def test_values_are_captured_in_the_order_they_were_given() -> None:
    assert values_in(HEADER) == (b"17", b"3", b'"KEYS"')
    other = HEADER.replace(b'"3"', b'"12345"').replace(b"17", b"0").replace(b"KEYS", b"\\u0001")
    assert values_in(other) == (b"0", b"12345", b'"\\u0001"')


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace(b"T.", b"Tx"),  # the dot is not a wildcard
        HEADER.replace(b"17", b"017"),
        HEADER.replace(b"17", b"-1"),
        HEADER.replace(b"17", b"1234567890"),
        HEADER.replace(b'"3"', b"3"),
        HEADER.replace(b'"3"', b'"123456"'),
        HEADER.replace(b"KEYS", b'a\\"b'),
        HEADER + b" ",
        b" " + HEADER,
    ],
)
def test_header_with_any_other_difference_does_not_match(header: bytes) -> None:
    assert values_in(header) is None


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace(b'"opaque"', b'"opaq"'),
        HEADER[:-1] + b',"opaque":18}',
        HEADER.replace(b'"3"', b'"three"'),
    ],
)
def test_header_without_exactly_one_of_each_value_has_no_pattern(header: bytes) -> None:
    assert header_pattern(header, VALUES) is None
