"""DLedger logs: both twins read entries as the golden store has them, and agree on cut and damaged ones."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitlog.formats.compat import COMPAT_4_9
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES, DLedgerEntry, encode_entry_header, encode_file_end
from orbitlog.formats.records.log_format import LogFormat, read_log_at
from orbitlog.formats.records.message import Message, decode_message, encode_message, make_message
from orbitlog.formats.records.message_scan import Damage
from orbitlog.kernels.columns import HeaderColumns, fill_columns, read_columns
from orbitlog.kernels.record_walk import DAMAGE, SourceBytes
from orbitlog.kernels.splits import unproved, walk_in_splits
from orbitlog.kernels.tally import Tally
from orbitlog.testing.golden import GoldenStore
from tests.support.logs import KINDS, make_log, random_kinds
from tests.support.twins import DLEDGER_FORMATS, DLEDGER_KERNELS, DLEDGER_TWINS, Derived, Twin

DLEDGER = LogFormat.DLEDGER
ALL_KINDS = make_log(list(KINDS) * 2, segment_bytes=8192, log_format=DLEDGER)


def data_files(golden: GoldenStore) -> list[tuple[int, bytes]]:
    return [(int(path.name), path.read_bytes()) for path in sorted((golden.store / "dledger-n0/data").iterdir())]


@pytest.mark.parametrize("twin", DLEDGER_TWINS.values(), ids=DLEDGER_TWINS)
def test_golden_entries_are_those_of_the_manifest(twin: Twin, golden_497_dledger: GoldenStore) -> None:
    seen = [(base, twin.scan(data, base)) for base, data in data_files(golden_497_dledger)]
    positions = [base + position for base, found in seen for position in found.positions]
    manifest = golden_497_dledger.manifest
    assert positions == [entry["pos"] for entry in manifest["dledgerEntries"]]
    assert positions == [message["commitLogOffset"] - ENTRY_HEADER_BYTES for message in manifest["messages"]]
    ends = [(base + found.ending[1]) for base, found in seen if found.ending and found.ending[0] == "SegmentEnd"]
    assert ends == [end["at"] for end in manifest["segmentEnds"]]
    assert seen[-1][1].ending is not None
    assert seen[-1][1].ending[:2] == ("LogEnd", manifest["endOfLastRecord"] - seen[-1][0])


@pytest.mark.parametrize("twin", DLEDGER_TWINS.values(), ids=DLEDGER_TWINS)
def test_golden_derived_files_are_made_again_byte_for_byte(twin: Twin, golden_497_dledger: GoldenStore) -> None:
    store = golden_497_dledger.store
    made = twin.derive(data_files(golden_497_dledger), DeriveRules(COMPAT_4_9), 800, IndexLayout(128, 240))
    queues = {
        (path.parent.parent.name, int(path.parent.name), int(path.name)): path.read_bytes()
        for path in (store / "consumequeue").glob("*/*/*")
    }
    live = Derived(queues, [path.read_bytes() for path in sorted((store / "index").iterdir())])
    # Apache creates files of queues and delay levels that have no message yet.
    assert {queue: file for queue, file in live.queues.items() if any(file)} == made.queues
    assert made.indexes == live.indexes


class Referee:
    """Puts one position of a buffer to both twins, which must agree on what it is and on every field of a message."""

    def __init__(self, buffer: bytearray, base: int) -> None:
        self._buffer, self._base = buffer, base
        self._source = SourceBytes(buffer, base, DLEDGER)
        self._row = HeaderColumns.allocate(1)

    def compare(self, position: int, end: int | None = None) -> object:
        end = len(self._buffer) if end is None else end
        found = read_log_at(memoryview(self._buffer)[:end], position, DLEDGER, base_physical_offset=self._base)
        rows, _, why = fill_columns(
            self._source.address, position, position + 1, end, self._base, True, ENTRY_HEADER_BYTES, True, self._row
        )
        assert rows == isinstance(found, Message), (position, found)
        assert (why == DAMAGE) == isinstance(found, Damage), (position, why, found)
        for name in COMPARED if isinstance(found, Message) else ():
            assert getattr(self._row, name)[0] == getattr(found, name), (position, name)
        return found


COMPARED = [name for name in HeaderColumns._fields if name in Message._fields]


@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_of_an_entry_of_every_kind(kind: str) -> None:
    log = make_log([kind], log_format=DLEDGER)
    message = log.messages[0]
    data = bytearray(log.segments[0][1][: message.physical_offset + message.size_bytes])
    referee = Referee(data, 0)
    for place in range(len(data)):
        for bit in range(8):
            data[place] ^= 1 << bit
            found = referee.compare(0)
            # Magic, size, sign of the index, offset and length of the body are checked; number, term and CRCs are not.
            assert place >= ENTRY_HEADER_BYTES or isinstance(found, Damage) == _is_checked(place, bit)
            data[place] ^= 1 << bit


def _is_checked(place: int, bit: int) -> bool:
    return place < 8 or 24 <= place < 32 or place >= 44 or (place == 8 and bit == 7)


def test_every_truncation_of_an_entry_is_damage() -> None:
    base, data = ALL_KINDS.segments[0]
    referee = Referee(bytearray(data), base)
    for start in DLEDGER_FORMATS.scan(data, base).positions[:10]:
        size = int.from_bytes(data[start + 4 : start + 8], "big")
        for length in range(1, size):
            assert isinstance(referee.compare(start, start + length), Damage)


def test_ends_and_zeros_look_the_same_to_both() -> None:
    (_, data), *_ = make_log(["plain"] * 3, log_format=DLEDGER).segments
    entries = data[: data.index(bytes(100))].rstrip(b"\0")
    for room in range(0, 70):
        for tail in (
            bytes(room),
            encode_file_end(room) if room >= 8 else b"",
            b"\xff" * room,
            b"\0\0\0\1" + bytes(room),
        ):
            buffer = entries + tail
            assert DLEDGER_KERNELS.scan(buffer, 0) == DLEDGER_FORMATS.scan(buffer, 0)


@pytest.mark.parametrize("twin", DLEDGER_TWINS.values(), ids=DLEDGER_TWINS)
def test_the_next_entry_is_found_after_any_position(twin: Twin) -> None:
    base, data = ALL_KINDS.segments[0]
    found = DLEDGER_FORMATS.scan(data, base)
    starts = found.positions
    for before, after in itertools.pairwise(starts):
        for place in (before + 1, before + ENTRY_HEADER_BYTES, (before + after) // 2, after):
            assert twin.find_record(data, place, base) == after
    end = found.ending
    assert end is not None
    assert twin.find_record(data, starts[-1] + 1, base) == (end[1] if end[0] == "SegmentEnd" else None)
    assert twin.find_record(data, len(data), base) is None


@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=30), place=st.integers(0), value=st.integers(0, 255))
@settings(deadline=None)
def test_both_agree_on_a_log_with_one_wrong_byte(kinds: list[str], place: int, value: int) -> None:
    for base, data in make_log(kinds, log_format=DLEDGER).segments:
        broken = bytearray(data)
        broken[place % len(broken)] = value
        assert DLEDGER_KERNELS.scan(broken, base) == DLEDGER_FORMATS.scan(broken, base)
        start = place % len(broken)
        assert DLEDGER_KERNELS.find_record(broken, start, base) == DLEDGER_FORMATS.find_record(broken, start, base)


@pytest.mark.parametrize("split_bytes", [1, 48, 100, 777, 5000])
def test_splits_of_a_log_of_every_kind_have_all_entries(split_bytes: int) -> None:
    log = make_log(random_kinds(200, seed=11), segment_bytes=1 << 15, log_format=DLEDGER)
    found = 0
    for base, data in log.segments:
        walks = walk_in_splits(data, split_bytes, base_physical_offset=base, log_format=DLEDGER, check_crc=True)
        assert unproved(walks) is None
        found += sum(walk.message_count for walk in walks)
    assert found == 200


@pytest.mark.parametrize("split_bytes", [1, 64, 100, 4096])
def test_forged_entries_in_bodies_are_not_taken_for_entries(split_bytes: int) -> None:
    data = b""
    for number in range(20):
        at = len(data) + ENTRY_HEADER_BYTES + 88 + 10
        forged = encode_message(make_message("F", b"forged" * 9, physical_offset=at + ENTRY_HEADER_BYTES))
        inner = encode_entry_header(DLedgerEntry(number, 1, at, len(forged))) + forged
        body = b"-" * 10 + inner + b"-" * (number * 7 % 50)
        record = encode_message(make_message("T", body, physical_offset=len(data) + ENTRY_HEADER_BYTES))
        data += encode_entry_header(DLedgerEntry(number, 1, len(data), len(record))) + record
    data += encode_file_end(100)
    walks = walk_in_splits(data, split_bytes, base_physical_offset=0, log_format=DLEDGER, check_crc=True)
    assert sum(walk.message_count for walk in walks) == 20


def test_columns_batches_and_counts_equal_decoded_messages() -> None:
    log = make_log(random_kinds(300, seed=7), segment_bytes=1 << 18, log_format=DLEDGER)
    ((base, data),) = log.segments
    columns, _, stop = read_columns(data, base_physical_offset=base, log_format=DLEDGER)
    assert stop is not None
    assert [decode_message(data, int(position)) for position in columns.position] == log.messages
    # Small batches and little room: some end inside, and one record is larger than all the room.
    batches = pytest.importorskip("orbitlog.kernels.arrow_batches", reason="needs pyarrow")
    decoder = batches.ArrowDecoder(["physical_offset", "body", "topic"], batch_rows=13, batch_bytes=300)
    batches = list(decoder.decode(data, base_physical_offset=base, log_format=DLEDGER))
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows == [
        {"physical_offset": one.physical_offset, "body": one.body, "topic": one.topic} for one in log.messages
    ]
    tally = Tally()
    assert list(tally.count(data, 0, len(data), base_physical_offset=base, log_format=DLEDGER)) == []
    assert tally.message_count == 300
    queues = tally.take()[0]
    assert queues.kind == "queue"
    assert json.dumps(sorted(set(queues.topics))) == json.dumps(sorted({one.topic for one in log.messages}))
