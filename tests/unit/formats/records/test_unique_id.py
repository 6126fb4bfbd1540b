from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orbitlog.errors import BadField
from orbitlog.formats.records.unique_id import UniqueId, parse_unique_id

DAY_MS = 86_400_000


def instant_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


VECTORS = [
    # The first message of the 4.9.7 store: born 2026-11-15T08:42:20.568Z in a process whose number ends with 0x2ABD
    (UniqueId(bytes((192, 0, 2, 2)), 0x2ABD, 0x4E0E2F2A, 0x49F74018, 0), "C00002022ABD4E0E2F2A49F740180000"),
    (UniqueId(bytes(4), 0, -1, 0, 0xFFFF), "000000000000FFFFFFFF00000000FFFF"),
    # The last millisecond of a month of 31 days does not fit a signed int.
    (UniqueId(bytes(4), 1, 2, 31 * DAY_MS - 1, 3), "000000000001000000029FA523FF0003"),
    (
        UniqueId(bytes.fromhex("20010db8000000000000000000000001"), 7, 8, 9, 10),
        "20010DB800000000000000000000000100070000000800000009000A",
    ),
]


@pytest.mark.parametrize(("identity", "text"), VECTORS)
def test_both_directions(identity: UniqueId, text: str) -> None:
    assert str(identity) == text
    assert parse_unique_id(text) == identity
    assert parse_unique_id(text.lower()) == identity


def test_process_and_counter_keep_16_bits() -> None:
    assert str(UniqueId(bytes(4), 0x12345, 0, 0, 0x1FFFF)) == "00000000234500000000000000000000"[:-4] + "FFFF"


@pytest.mark.parametrize(
    "identity",
    [
        UniqueId(bytes(5), 0, 0, 0, 0),
        UniqueId(b"", 0, 0, 0, 0),
        UniqueId(bytes(4), 0, 2**31, 0, 0),
        UniqueId(bytes(4), 0, 0, -1, 0),
        UniqueId(bytes(4), 0, 0, 2**32, 0),
    ],
)
def test_parts_that_do_not_fit(identity: UniqueId) -> None:
    with pytest.raises(BadField) as caught:
        str(identity)
    assert caught.value.field == "unique id"


@pytest.mark.parametrize(
    "text", ["", "0" * 31, "0" * 33, "0" * 34, "0" * 55, "0" * 58, "G" * 32, "0" * 30 + " 0", "é" * 32]
)
def test_anything_else_is_no_id(text: str) -> None:
    with pytest.raises(BadField) as caught:
        parse_unique_id(text)
    assert caught.value.field == "unique id"


MARCH, APRIL = instant_ms("2026-03-01"), instant_ms("2026-04-01")


@pytest.mark.parametrize(
    ("since_ms", "now", "born"),
    [
        (0, "2026-04-01T00:00:00.001", "2026-04-01T00:00:00"),
        (5, "2026-04-01T00:00:00.006", "2026-04-01T00:00:00.005"),
        # Made this very millisecond or "in the future": Java takes the month before.
        (5, "2026-04-01T00:00:00.005", "2026-03-01T00:00:00.005"),
        (5, "2026-04-01T00:00:00.004", "2026-03-01T00:00:00.005"),
        (31 * DAY_MS - 1, "2026-04-01T00:00:00", "2026-03-31T23:59:59.999"),
        (29 * DAY_MS, "2026-04-30T12:00:00", "2026-04-30T00:00:00"),
        (29 * DAY_MS, "2026-04-29T12:00:00", "2026-03-30T00:00:00"),
    ],
)
def test_the_time_of_birth_over_the_end_of_a_month(since_ms: int, now: str, born: str) -> None:
    identity = parse_unique_id(str(UniqueId(bytes(4), 0, 0, since_ms, 0)))
    assert identity.born_timestamp_ms(APRIL, MARCH, instant_ms(now)) == instant_ms(born)


def test_first_message_of_a_golden_store_was_born_when_it_states() -> None:
    month, previous = instant_ms("2026-11-01"), instant_ms("2026-10-01")
    born_ms = VECTORS[0][0].born_timestamp_ms(month, previous, now_ms=1794732140581)
    assert 0 <= 1794732140569 - born_ms < 1000
