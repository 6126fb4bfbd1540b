"""Ids that never repeat, in the form that Java reads."""

from __future__ import annotations

from datetime import datetime

from orbitlog.formats.records.unique_id import parse_unique_id
from orbitlog.remoting.unique_ids import UniqueIds

ADDRESS = bytes((10, 0, 0, 1))


def test_id_contains_address_and_time() -> None:
    moment = datetime(2026, 12, 31, 23, 59, 59, 999_000)
    ids = UniqueIds()
    now_ms = int(moment.timestamp() * 1000)
    parsed = parse_unique_id(ids.make(ADDRESS, now_ms))
    assert parsed.address == ADDRESS
    assert parsed.since_month_start_ms == now_ms - int(datetime(2026, 12, 1).timestamp() * 1000)
    # The next millisecond is another month, and counts from its start.
    assert parse_unique_id(ids.make(ADDRESS, now_ms + 1)).since_month_start_ms == 0


def test_ids_of_one_millisecond_differ_and_those_of_ipv6_are_longer() -> None:
    ids = UniqueIds()
    made = [ids.make(ADDRESS, 1_700_000_000_000) for _ in range(0x10000)]
    assert len(set(made)) == 0x10000
    other = ids.make(bytes(16), 1_700_000_000_000)
    assert (len(made[0]), len(other)) == (32, 56)
    assert parse_unique_id(other).address == bytes(16)
