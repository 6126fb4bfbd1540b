from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import BadField, LengthMismatch
from orbitlog.formats.derived.bloom import BloomFilter, bloom_filter, murmur3_x64_128
from tests.support.damage import repeatable

FILTER = bloom_filter()


@pytest.mark.parametrize(
    ("length", "low", "high"),
    [  # of the bytes 0, 1, 2, …; lengths around the block of 16 and its halves
        (0, 0x0000000000000000, 0x0000000000000000),
        (1, 0x4610ABE56EFF5CB5, 0x51622DAA78F83583),
        (15, 0x47231598FD4925E9, 0xCD846DEE88C67DE9),
        (16, 0x444924B591903F30, 0xAB906456762FE845),
        (17, 0x5C76F40F9FE7C20E, 0xC15F026B9EDAA824),
        (33, 0x7D41281BFABA4612, 0x55AC8073A7D6A30B),
    ],
)
def test_hash(length: int, low: int, high: int) -> None:
    assert murmur3_x64_128(bytes(range(length))) == (low, high)


@pytest.mark.parametrize(
    ("group", "topic", "positions"),
    [  # answers of Java's BloomFilter
        ("g1", "TopicTest", (71, 62, 52)),
        ("g2", "TopicTest", (89, 68, 29)),
        ("CID_sql", "Orders", (78, 78, 20)),
        ("g", "t", (22, 87, 58)),
        ("消费组", "主题", (101, 21, 111)),
        ("a-long-group-name-of-more-than-sixteen-bytes", "and-a-long-topic", (81, 89, 97)),
    ],
)
def test_positions_are_java_s(group: str, topic: str, positions: tuple[int, ...]) -> None:
    assert FILTER.positions(group=group, topic=topic) == positions


@pytest.mark.parametrize(
    ("error_rate_percent", "consumer_count", "hash_count", "bit_count"),
    [(20, 32, 3, 112), (10, 128, 4, 616), (1, 1, 7, 16), (50, 8, 1, 16), (25, 100, 2, 296), (99, 1, 1, 8)],
)
def test_geometry_is_java_s(error_rate_percent: int, consumer_count: int, hash_count: int, bit_count: int) -> None:
    assert bloom_filter(error_rate_percent, consumer_count) == BloomFilter(bit_count, hash_count)


@pytest.mark.parametrize("arguments", [(0, 1), (100, 1), (-5, 1), (20, 0), (20, 10**9)])
def test_impossible_geometry_is_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(BadField):
        bloom_filter(*arguments)


def test_bitmap_bytes() -> None:
    positions = FILTER.positions(group="g1", topic="TopicTest")
    assert FILTER.bitmap([positions]).hex() == "0000000000001040800000000000"
    assert FILTER.bitmap([]) == bytes(14)


@repeatable
@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=5))
def test_every_consumer_in_a_bitmap_is_hit(consumers: list[tuple[str, str]]) -> None:
    all_positions = [FILTER.positions(group=group, topic=topic) for group, topic in consumers]
    bitmap = FILTER.bitmap(all_positions)
    assert all(FILTER.is_hit(bitmap, positions) for positions in all_positions)


def test_a_bit_that_is_not_set_is_no_hit() -> None:
    assert not FILTER.is_hit(FILTER.bitmap([(1, 2)]), (1, 3))


def test_a_bitmap_of_another_filter_is_refused() -> None:
    with pytest.raises(LengthMismatch):
        FILTER.is_hit(bytes(13), (1,))


@pytest.mark.parametrize("position", [-1, 112])
def test_a_bit_outside_the_bitmap_is_refused(position: int) -> None:
    with pytest.raises(BadField):
        FILTER.bitmap([(position,)])
    with pytest.raises(BadField):
        FILTER.is_hit(bytes(14), (position,))
