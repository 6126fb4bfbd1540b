"""Property CRCs: both twins find the same records right, damaged and without one."""

from __future__ import annotations

import pytest

from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.records.message import Message, encode_message, make_message
from orbitlog.formats.records.message_scan import Damage, read_at, scan_messages
from orbitlog.formats.records.property_crc import ends_with_crc, seal_record, with_room_for_crc
from orbitlog.kernels.dispatch import DispatchScan
from orbitlog.kernels.property_faults import count_without_crc
from orbitlog.store.log.property_crc_mode import RecordsWithoutCrc, records_without_crc
from tests.support.logs import KINDS, make_kind
from tests.support.twins import FORMATS, KERNELS

BASE = 4096


def sealed_segment(count: int = 12) -> bytes:
    data = b""
    for number in range(count):
        message = make_kind(KINDS[number % len(KINDS)], number)
        placed = message._replace(
            properties_raw=with_room_for_crc(message.properties_raw), physical_offset=BASE + len(data)
        )
        data += seal_record(encode_message(placed))
    return data


def test_twins_agree_on_each_flipped_bit() -> None:
    whole = sealed_segment(6)
    assert FORMATS.scan(whole, BASE) == KERNELS.scan(whole, BASE)
    assert len(FORMATS.scan(whole, BASE).positions) == 6
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        found = FORMATS.scan(bytes(damaged), BASE)
        assert found == KERNELS.scan(bytes(damaged), BASE), position


def test_no_damage_under_the_crc_is_missed() -> None:
    raw = with_room_for_crc(b"KEYS\x01key\x02TAGS\x01tag\x02")
    record = seal_record(encode_message(make_message("Topic", b"body", properties=raw)))
    for position in range(len(record) - 20):
        damaged = bytearray(record)
        damaged[position] ^= 0x10
        assert not isinstance(read_at(damaged, 0, base_physical_offset=0), Message), position


def test_tally_and_batches_stop_at_a_wrong_crc() -> None:
    pytest.importorskip("pyarrow", reason="batches and statistics need the extra `fast`")
    from orbitlog.kernels.arrow_batches import ArrowDecoder
    from orbitlog.kernels.tally import Tally

    damaged = bytearray(sealed_segment(3))
    second = FORMATS.scan(bytes(damaged), BASE).positions[1]
    damaged[FORMATS.scan(bytes(damaged), BASE).positions[2] - 25] ^= 1
    tally = Tally()
    assert not list(tally.count(bytes(damaged), 0, len(damaged), base_physical_offset=BASE, check_crc=True))
    assert tally.ended[0] == second
    assert isinstance(tally.ended[1], Damage)
    scan = DispatchScan(DeriveRules())
    assert sum(len(columns.sys_flag) for columns in scan.scan(damaged, base_physical_offset=BASE, check_crc=True)) == 1
    assert scan.ended[0] == second
    decoder = ArrowDecoder()
    assert sum(batch.num_rows for batch in decoder.decode(bytes(damaged), base_physical_offset=BASE)) == 1
    assert decoder.ended[0] == second


@pytest.mark.parametrize("lacking", [(), (0,), (3, 5), (11,), tuple(range(12))])
def test_records_without_crc_are_counted(lacking: tuple[int, ...]) -> None:
    data, first = b"", -1
    for number in range(12):
        raw = b"" if number % 2 else b"KEYS\x01k\x02"
        fused = number % 3 == 0 and number in lacking  # Java's batches: no separator before it
        raw = raw if number in lacking else with_room_for_crc(raw)
        raw = b"K\x01v" + with_room_for_crc(b"") if fused else raw
        message = make_message("T", b"x", properties=raw, physical_offset=BASE + len(data))
        if number in lacking and first < 0:
            first = message.physical_offset
        record = encode_message(message)
        data += seal_record(record) if fused or number not in lacking else record
    expected = RecordsWithoutCrc(len(lacking), first)
    assert RecordsWithoutCrc(*count_without_crc(data, BASE)) == expected
    with memoryview(data) as view:
        assert records_without_crc(view, BASE) == expected
    found = [one for one in scan_messages(data, base_physical_offset=BASE) if isinstance(one, Message)]
    assert sum(not ends_with_crc(one.properties_raw) for one in found) == len(lacking)
