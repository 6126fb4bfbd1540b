"""Numbers from text, as Java reads and orders them."""

from __future__ import annotations

import math

import pytest

from orbitlog.filters.java_numbers import compare_doubles, parse_boolean, parse_double, parse_integer, parse_long


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("+7", 7), ("-007", -7), ("2147483647", 2**31 - 1), ("٣", 3), ("0" * 5000 + "1", 1)]
)
def test_integers(text: str, number: int) -> None:
    assert parse_integer(text) == number


NO_INTEGERS = ["", "+", " 1", "1_0", "1.0", "2147483648", "-2147483649", "0x1", "\N{MATHEMATICAL BOLD DIGIT ONE}"]


@pytest.mark.parametrize("text", [*NO_INTEGERS, "9" * 5000])
def test_no_integers(text: str) -> None:
    with pytest.raises(ValueError):
        parse_integer(text)


def test_longs() -> None:
    assert parse_long("-9223372036854775808") == -(2**63)
    with pytest.raises(ValueError, match="out of range"):
        parse_long("9223372036854775808")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1.0), (" 1.5 ", 1.5), (".5", 0.5), ("5.", 5.0), ("1e2", 100.0), ("1E+2f", 100.0), ("2d", 2.0),
        ("0x1.8p1", 3.0), ("-0x1p-1", -0.5), ("-Infinity", -math.inf), ("1e999", math.inf), ("0x1p9999", math.inf),
    ],
)  # fmt: skip
def test_doubles(text: str, number: float) -> None:
    assert parse_double(text) == number


@pytest.mark.parametrize("text", ["", ".", "e1", "nan", "infinity", "inf", "1_0", "0x1", "1 2", "٣", "NaNf"])
def test_no_doubles(text: str) -> None:
    with pytest.raises(ValueError):
        parse_double(text)


def test_order_of_doubles() -> None:
    ascending = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, parse_double("NaN")]
    for place, left in enumerate(ascending):
        for other, right in enumerate(ascending):
            answer = compare_doubles(left, right)
            assert (answer > 0) - (answer < 0) == (place > other) - (place < other)


def test_booleans() -> None:
    assert [parse_boolean(text) for text in ("true", "TRUE", "yes", "")] == [True, True, False, False]
