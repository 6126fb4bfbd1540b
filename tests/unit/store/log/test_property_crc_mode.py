"""When records get a property CRC, on every way into the log, and the notices about records without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records.batch import BatchMember, encode_batch, expand_batch
from orbitlog.formats.records.message import Message, encode_message, make_message, measure_record
from orbitlog.formats.records.message_scan import Damage, scan_messages
from orbitlog.formats.records.properties import check_crc_property
from orbitlog.formats.records.property_crc import ends_with_crc
from orbitlog.formats.records.record_template import Row
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.appending.put_result import PutStatus
from orbitlog.store.log.property_crc_mode import find_records_without_crc
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import PropertyCrc, StoreConfig
from orbitlog.storefiles.store_files import find_store_files

GEOMETRY = StoreGeometry(segment_bytes=8192, queue_file_bytes=200, index_layout=IndexLayout(10, 30))
HOST = parse_host("127.0.0.1:10911")
PLAIN = make_message("T", b"plain", properties=b"KEYS\x01k", born_host=HOST, store_host=HOST)
STALE = PLAIN._replace(properties_raw=b"KEYS\x01k\x02__CRC32#\x010123456789\x02")


def config(append: bool | None = None, *, verify: bool = False) -> StoreConfig:
    return StoreConfig(GEOMETRY, property_crc=PropertyCrc(append, verify))


def open_store(root: Path, settings: StoreConfig) -> MessageStore:
    return MessageStore.open(root, settings, lambda: 1_700_000_000_000)


def row_of(message: Message) -> Row:
    return measure_record(message)[1]


def append_each_way(store: MessageStore) -> int:
    """Append by every way there is; returns how many records that are."""
    before = store.messages_appended
    assert store.append(PLAIN).is_stored
    assert store.append(STALE).is_stored
    assert store.append(PLAIN._replace(properties_raw=b"")).is_stored
    assert store.append(PLAIN._replace(properties_raw=b"K\x01\0\x02")).is_stored
    places = store.append_run([row_of(PLAIN)] * 2)
    if not places:  # there is no segment to go on in, or no room
        assert store.append(PLAIN).is_stored
    batch = PLAIN._replace(body=encode_batch([BatchMember(b"one", b"A\x01b"), BatchMember(b"two", b"A\x01b")]))
    added = b"CLUSTER\x01c\x02"
    if store.append_members(batch, added) is None:
        members = expand_batch(batch._replace(properties_raw=added))
        assert all(result.is_stored for result in store.append_batch(members))
    assert all(result.is_stored for result in store.append_batch([PLAIN, STALE]))
    assert store.append_batch([STALE])[0].is_stored
    store.dispatch_once()
    return store.messages_appended - before


def records(root: Path) -> list[Message]:
    found: list[Message] = []
    for segment in find_store_files(root).segments:
        for one in scan_messages(segment.path.read_bytes(), base_physical_offset=segment.base):
            assert not isinstance(one, Damage), one
            if isinstance(one, Message):
                found.append(one)
    return found


def has_right_crc(record: Message) -> bool:
    return check_crc_property(encode_message(record)) and ends_with_crc(record.properties_raw)


@pytest.mark.parametrize("settings", [config(True), config(verify=True), config(False, verify=True)])
@pytest.mark.parametrize("kernels", [False, True])
def test_every_way_appends_it_if_a_setting_asks(tmp_path: Path, settings: StoreConfig, kernels: bool) -> None:
    with open_store(tmp_path, settings) as store:
        if kernels:
            store.load_kernels()
        count = append_each_way(store) + append_each_way(store)
        assert not store.damage
    found = records(tmp_path)
    assert len(found) == count
    assert all(map(has_right_crc, found))
    assert all(record.properties_raw.count(b"__CRC32#") == 1 for record in found)
    assert find_records_without_crc(find_store_files(tmp_path).segments).count == 0


@pytest.mark.parametrize("settings", [config(), config(False)])
def test_no_way_appends_it_unasked(tmp_path: Path, settings: StoreConfig) -> None:
    with open_store(tmp_path, settings) as store:
        count = append_each_way(store)
    found = records(tmp_path)
    with_zeros = [record for record in found if 0 in record.properties_raw]
    assert [record for record in found if b"__CRC32#" in record.properties_raw] == with_zeros
    lacking = find_records_without_crc(find_store_files(tmp_path).segments)
    assert (lacking.count, lacking.first_physical_offset) == (count - len(with_zeros), 0)


def test_store_continues_as_its_last_records_are(tmp_path: Path) -> None:
    def turn(settings: StoreConfig) -> tuple[list[bool], list[str]]:
        before = len(records(tmp_path)) if tmp_path.joinpath("commitlog").exists() else 0
        with open_store(tmp_path, settings) as store:
            notices = store.notices
            store.append(PLAIN)
            store.append(PLAIN)
            store.dispatch_once()
        return [has_right_crc(record) for record in records(tmp_path)[before:]], notices

    assert turn(config()) == ([False, False], [])
    assert turn(config(True)) == ([True, True], [])
    assert turn(config()) == ([True, True], [])
    crcs, notices = turn(config(False))
    assert crcs == [False, False]
    assert "enabledAppendPropCRC=false" in notices[0].sentence
    assert turn(config()) == ([False, False], [])
    crcs, notices = turn(config(verify=True))
    assert crcs == [True, True]
    assert "6 records" in notices[0].sentence and "physical offset 0," in notices[0].sentence


def test_sealed_message_with_zeros_does_not_enable_the_mode(tmp_path: Path) -> None:
    with open_store(tmp_path, config()) as store:
        store.append(PLAIN)
        store.append(PLAIN._replace(properties_raw=b"K\x01\0\x02", queue_id=1))
        store.dispatch_once()
    with open_store(tmp_path, config()) as store:
        store.append(PLAIN)
    assert [has_right_crc(record) for record in records(tmp_path)] == [False, True, False]


def test_properties_without_room_for_it_are_refused(tmp_path: Path) -> None:
    long = PLAIN._replace(properties_raw=b"K\x01" + b"x" * (32767 - 23) + b"\x02")
    big = StoreConfig(StoreGeometry(segment_bytes=1 << 20, queue_file_bytes=200), property_crc=PropertyCrc(True))
    with open_store(tmp_path, big) as store:
        assert store.append(long).is_stored
        longer = long._replace(properties_raw=b"x" + long.properties_raw)
        assert store.append(longer).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
        assert store.append_run([(*row_of(PLAIN)[:-1], longer.properties_raw)]) == []


def test_damaged_properties_are_found_when_an_unclosed_store_is_opened(tmp_path: Path) -> None:
    with open_store(tmp_path, config(True)) as store:
        for _ in range(3):
            last = store.append(PLAIN)
        store.dispatch_once()
        expected = store.append(PLAIN)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").unlink()
    segment = tmp_path / "commitlog" / f"{0:020d}"
    raw = bytearray(segment.read_bytes())
    raw[expected.physical_offset + expected.size_bytes - 22] ^= 1  # the last byte of its last own property
    segment.write_bytes(raw)
    with open_store(tmp_path, config(True)) as store:
        assert store.written_to == last.physical_offset + last.size_bytes
