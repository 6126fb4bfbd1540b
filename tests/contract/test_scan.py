"""Scanning: both twins see the same messages, and the same end, in whole, cut and damaged bytes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings

from orbitlog.formats.records.message import Message, decode_message, encode_message
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd, read_at
from orbitlog.kernels.arrays import np
from orbitlog.kernels.columns import HeaderColumns, fill_columns, read_columns
from orbitlog.kernels.record_walk import DAMAGE, SourceBytes
from orbitlog.testing.golden import GoldenStore
from orbitlog.testing.strategies import Segment, segments
from tests.support.logs import KINDS, make_log, random_kinds
from tests.support.twins import FORMATS, KERNELS, TWINS

ALL_KINDS = make_log(list(KINDS) * 2, segment_bytes=8192)


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    return request.getfixturevalue(request.param)


def golden_segments(golden: GoldenStore) -> list[tuple[int, bytes]]:
    return [(int(path.name), path.read_bytes()) for path in sorted((golden.store / "commitlog").iterdir())]


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_golden_log_is_what_the_manifest_states(twin, golden: GoldenStore) -> None:
    seen = [(base, twin.scan(data, base)) for base, data in golden_segments(golden)]
    positions = [base + position for base, found in seen for position in found.positions]
    assert positions == [message["commitLogOffset"] for message in golden.manifest["messages"]]
    ends = [(base + found.ending[1]) for base, found in seen if found.ending and found.ending[0] == "SegmentEnd"]
    assert ends == [end["at"] for end in golden.manifest["segmentEnds"]]
    last = [found for _, found in seen if found.positions][-1]
    assert last.ending is not None
    assert last.ending[0] == "LogEnd"


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_every_kind_of_record(twin) -> None:
    positions = []
    for base, data in ALL_KINDS.segments:
        positions += [base + position for position in twin.scan(data, base).positions]
    assert positions == [message.physical_offset for message in ALL_KINDS.messages]


@given(segments())
@settings(deadline=None)
def test_generated_segments_look_the_same(segment: Segment) -> None:
    for base in (segment.base_physical_offset, None, segment.base_physical_offset + 1):
        assert KERNELS.scan(segment.data, base) == FORMATS.scan(segment.data, base)


class Referee:
    """Puts one position of a buffer to both twins, which must agree on what it is and on every field of a message."""

    def __init__(self, buffer: bytearray, base: int) -> None:
        self._buffer, self._base = buffer, base
        self._source = SourceBytes(buffer, base)
        self._row = HeaderColumns.allocate(1)

    def compare(self, position: int, end: int | None = None) -> Message | SegmentEnd | LogEnd | Damage:
        end = len(self._buffer) if end is None else end
        view = memoryview(self._buffer)[:end]
        found = read_at(view, position, base_physical_offset=self._base)
        rows, _, why = fill_columns(
            self._source.address, position, position + 1, end, self._base, True, 0, True, self._row
        )
        assert rows == isinstance(found, Message), (position, found)
        assert (why == DAMAGE) == isinstance(found, Damage), (position, why, found)
        if isinstance(found, Message):
            for name in COMPARED:
                assert getattr(self._row, name)[0] == getattr(found, name), (position, name)
        return found


COMPARED = [name for name in HeaderColumns._fields if name in Message._fields]


def record_spans(base: int, data: bytes) -> list[tuple[int, int]]:
    return [(at, int.from_bytes(data[at : at + 4], "big")) for at in FORMATS.scan(data, base).positions]


@pytest.mark.slow
def test_every_flipped_byte_of_the_golden_logs(golden: GoldenStore) -> None:
    for base, data in golden_segments(golden):
        buffer = bytearray(data)
        referee = Referee(buffer, base)
        for start, size in record_spans(base, data):
            for place in range(start, start + size):
                buffer[place] ^= 0xFF
                referee.compare(start)
                buffer[place] ^= 0xFF
        assert buffer == data


@pytest.mark.slow
def test_every_truncation_of_the_golden_logs(golden: GoldenStore) -> None:
    for base, data in golden_segments(golden):
        referee = Referee(bytearray(data), base)
        for start, size in record_spans(base, data):
            for length in range(1, size):
                assert isinstance(referee.compare(start, start + length), Damage)


@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_of_every_kind(kind: str) -> None:
    log = make_log([kind])
    message = log.messages[0]
    record = bytearray(encode_message(message))
    referee = Referee(record, message.physical_offset)
    for place in range(len(record)):
        for bit in range(8):
            record[place] ^= 1 << bit
            referee.compare(0)
            record[place] ^= 1 << bit


@pytest.mark.parametrize("twin", TWINS.values(), ids=TWINS)
def test_getting_back_into_step(twin) -> None:
    base, data = ALL_KINDS.segments[0]
    starts = [message.physical_offset for message in ALL_KINDS.messages if message.physical_offset < len(data)]
    blank = FORMATS.scan(data, base).ending
    for before, after in itertools.pairwise(starts):
        for place in (before + 1, (before + after) // 2, after):
            assert twin.find_record(data, place, base) == after
    assert blank is None or twin.find_record(data, starts[-1] + 1, base) in (blank[1], None)
    assert twin.find_record(data, len(data), base) is None


@given(segments(messages_min=1))
@settings(deadline=None)
def test_both_get_back_into_step_at_the_same_place(segment: Segment) -> None:
    for start in range(0, len(segment.data), 13):
        base = segment.base_physical_offset
        assert KERNELS.find_record(segment.data, start, base) == FORMATS.find_record(segment.data, start, base)


def test_columns_of_a_long_range_equal_decoded_messages() -> None:
    log = make_log(random_kinds(400, seed=7), segment_bytes=1 << 20)
    ((base, data),) = log.segments
    columns, position, stop = read_columns(data, base_physical_offset=base)
    assert len(columns.position) == 400
    assert stop is not None
    for row, message in enumerate(log.messages):
        assert decode_message(data, int(columns.position[row])) == message
        for name in ("queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp_ms", "body_crc"):
            assert getattr(columns, name)[row] == getattr(message, name)
        place, length = int(columns.body_position[row]), int(columns.body_length[row])
        assert data[place : place + length] == message.body
        place, length = int(columns.properties_position[row]), int(columns.properties_length[row])
        assert data[place : place + length] == message.properties_raw
    assert position == stop.position


def test_range_outside_of_its_bytes_is_refused() -> None:
    for start, stop in ((-1, 5), (3, 2), (0, 11), (11, 11)):
        with pytest.raises(ValueError, match="not inside"):
            SourceBytes(bytes(10)).range(start, stop)
    assert isinstance(SourceBytes(np.zeros(10, np.uint8).data).array, np.ndarray)
