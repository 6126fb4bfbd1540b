"""Splits: however a segment is cut, the proof gives the messages of one walk, forged records or not."""

from __future__ import annotations

import pytest

from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_scan import LogEnd, encode_blank
from orbitlog.kernels.record_walk import SourceBytes
from orbitlog.kernels.splits import Split, cut, find_record, unproved, walk_in_splits, walk_split
from tests.support.logs import make_log, random_kinds
from tests.support.twins import FORMATS

SEGMENT_BYTES = 1 << 16


def forged_segment(base: int) -> tuple[bytes, int]:
    """Return a segment whose bodies contain records that state their own physical offset, and the first position."""
    data, first_forged = b"", 0
    for number in range(40):
        outer = make_message("T", b"", queue_offset=number, physical_offset=base + len(data))
        forged_at = len(data) + 88 + 10
        forged = encode_message(make_message("F", b"forged" * 9, physical_offset=base + forged_at))
        # The forged record's chain ends inside the true one: it shows where the next split starts.
        body = b"-" * 10 + forged + b"-" * (number * 7 % 50)
        data += encode_message(make_message("T", body, **{"physical_offset": outer.physical_offset}))
        first_forged = first_forged or forged_at
    return (data + encode_blank(SEGMENT_BYTES - len(data))).ljust(SEGMENT_BYTES, b"\0"), first_forged


@pytest.mark.parametrize("split_bytes", [1, 7, 64, 91, 100, 1000, 4096, 65_535, 65_536, 100_000])
@pytest.mark.parametrize("base", [0, 7 * SEGMENT_BYTES])
def test_forged_records_do_not_change_what_is_found(split_bytes: int, base: int) -> None:
    data, _ = forged_segment(base)
    walks = walk_in_splits(data, split_bytes, base_physical_offset=base, check_crc=True)
    assert sum(walk.message_count for walk in walks) == 40
    assert unproved(walks) is None
    truth = FORMATS.scan(data, base)
    assert truth.ending is not None
    assert walks[-1].next_position == truth.ending[1]


def test_a_forged_record_does_fool_who_looks_without_proof() -> None:
    data, forged_at = forged_segment(0)
    assert find_record(data, forged_at - 3, base_physical_offset=0) == forged_at
    source = SourceBytes(data, 0)
    split = Split(forged_at - 3, forged_at + 200)
    fooled = walk_split(source, split)
    before = walk_split(source, Split(0, split.start))
    assert fooled.first == forged_at
    assert before.next_position != fooled.first
    assert unproved([before, fooled]) == (1, before.next_position)


@pytest.mark.parametrize("split_bytes", [100, 777, 5000])
def test_splits_of_a_log_of_every_kind(split_bytes: int) -> None:
    log = make_log(random_kinds(300, seed=11), segment_bytes=SEGMENT_BYTES)
    found = 0
    for base, data in log.segments:
        walks = walk_in_splits(data, split_bytes, base_physical_offset=base, check_crc=True)
        found += sum(walk.message_count for walk in walks)
    assert found == 300


def test_damage_ends_the_chain() -> None:
    log = make_log(["plain"] * 20)
    base, data = log.segments[0]
    broken = bytearray(data)
    broken[log.messages[5].physical_offset - base + 4] ^= 0xFF
    walks = walk_in_splits(broken, 500, base_physical_offset=base)
    assert sum(walk.message_count for walk in walks) == 5
    assert type(walks[-1].stop).__name__ == "Damage"


def test_an_empty_segment_is_the_end_of_the_log() -> None:
    (walk,) = walk_in_splits(bytes(1000), 100, base_physical_offset=0)[:1]
    assert walk.stop == LogEnd(0)


def test_cut_covers_everything_once() -> None:
    assert cut(10, 4) == [Split(0, 4), Split(4, 8), Split(8, 10)]
    assert cut(0, 4) == []
    with pytest.raises(ValueError, match="too small"):
        cut(10, 0)
