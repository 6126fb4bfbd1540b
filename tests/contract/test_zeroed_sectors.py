"""Zeroed sectors in properties: the kernel finds what a search of the decoded records finds."""

from __future__ import annotations

import random
import re

import pytest

from orbitlog.formats.records.message import encode_message, make_message
from orbitlog.formats.records.message_scan import scan_messages
from orbitlog.kernels.property_faults import SECTOR_BYTES, find_zeroed

BASE = 8192
ZEROS = re.compile(b"\\0{%d,}" % SECTOR_BYTES)


def record(properties: bytes, physical_offset: int, body: bytes = b"body") -> bytes:
    made = make_message("Topic", body, properties=properties)
    return encode_message(made._replace(physical_offset=physical_offset))


def first_by_decoding(segment: bytes) -> int | None:
    """Return the position of the first zeros in properties that are long enough."""
    for message in scan_messages(segment, base_physical_offset=BASE):
        end = message.physical_offset - BASE + message.size_bytes
        zeros = ZEROS.search(segment, end - len(message.properties_raw), end)
        if zeros:
            return zeros.start()
    return None


@pytest.mark.parametrize("seed", range(40))
def test_zeroed_run_is_found_at_its_first_byte(seed: int) -> None:
    chosen = random.Random(seed)
    segment = b""
    for _ in range(6):
        before, after = (chosen.choice((0, 1, 5, 300, 700)) for _ in range(2))
        zeros = chosen.choice((0, 1, SECTOR_BYTES - 1, SECTOR_BYTES, SECTOR_BYTES + 1, 3000))
        properties = b"K\x01" + b"v" * before + bytes(zeros) + b"w" * after
        segment += record(properties, BASE + len(segment), bytes(chosen.choice((0, 900))))
    following, found = find_zeroed(segment, 0, len(segment), base_physical_offset=BASE)
    assert (None if found is None else found[0]) == first_by_decoding(segment)
    if found is None:
        assert following == len(segment)
    else:
        start, stop = found
        assert not any(segment[start:stop]) and segment[start - 1] and (stop == following or segment[stop])


def test_walk_stops_at_bytes_that_are_not_a_record() -> None:
    first = record(b"K\x01v", BASE)
    assert find_zeroed(first + b"no record" * 20, 0, len(first) + 180, base_physical_offset=BASE) == (len(first), None)


def test_range_outside_of_the_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="is not inside"):
        find_zeroed(b"1234", 0, 5, base_physical_offset=0)
