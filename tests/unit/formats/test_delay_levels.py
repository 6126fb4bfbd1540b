from __future__ import annotations

import pytest

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats.delay_levels import LEVELS_MAX, STANDARD_LEVELS, DelayLevels, parse_delay_levels, parse_level

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def test_the_standard_table() -> None:
    minutes = [number * MINUTE for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)]
    seconds = [number * SECOND for number in (1, 5, 10, 30)]
    assert STANDARD_LEVELS.delays_ms == (*seconds, *minutes, HOUR, 2 * HOUR)
    assert STANDARD_LEVELS.max_level == 18


def test_units() -> None:
    assert parse_delay_levels("0s 2m  3h\t4d").delays_ms == (0, 2 * MINUTE, 3 * HOUR, 4 * DAY)
    assert parse_delay_levels("").delays_ms == ()
    assert parse_delay_levels("999999999s").delays_ms == (999_999_999 * SECOND,)


@pytest.mark.parametrize("text", ["1", "s", "1x", "1S", "-1s", "1.5s", "1s,5s", "1s 5", "1234567890s", "²s"])
def test_what_is_no_table(text: str) -> None:
    with pytest.raises(BadField) as caught:
        parse_delay_levels(text)
    assert caught.value.field == "messageDelayLevel"


def test_a_table_has_a_limit() -> None:
    assert parse_delay_levels("1s " * LEVELS_MAX).max_level == LEVELS_MAX
    with pytest.raises(LimitExceeded):
        parse_delay_levels("1s " * (LEVELS_MAX + 1))


@pytest.mark.parametrize(
    ("level", "delay_ms"),
    [(1, SECOND), (2, 5 * SECOND), (18, 2 * HOUR), (19, SECOND), (0, SECOND), (-1, SECOND), (2**31 - 1, SECOND)],
)
def test_a_missing_level_waits_a_second(level: int, delay_ms: int) -> None:
    assert STANDARD_LEVELS.deliver_timestamp_ms(level, 1600000000456) == 1600000000456 + delay_ms


def test_the_first_level_is_1() -> None:
    levels = parse_delay_levels("7s 8s")
    assert [levels.deliver_timestamp_ms(level, 0) for level in (0, 1, 2, 3)] == [1_000, 7_000, 8_000, 1_000]


def test_levels_are_clamped_from_above_only() -> None:
    assert [STANDARD_LEVELS.clamp(level) for level in (-5, 0, 1, 18, 19, 1000)] == [-5, 0, 1, 18, 18, 18]
    assert DelayLevels(()).clamp(3) == 0


# Integer.parseInt, as printed by Java 17; None where it throws
@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("", None),
        ("+", None),
        ("-", None),
        ("+5", 5),
        ("-5", -5),
        ("--5", None),
        ("5 ", None),
        (" 5", None),
        ("0005", 5),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-2147483648", -2147483648),
        ("-2147483649", None),
        ("\u0661", 1),
        ("\uff11", 1),
        ("\U0001d7cf", None),
        ("1_0", None),
        ("0x1", None),
        ("1.0", None),
        ("\u0661x", None),
        ("\u2160", None),
        ("9" * 5000, None),
    ],
)
def test_a_level_is_read_as_java_reads_it(text: str, level: int | None) -> None:
    assert parse_level(text) == level
