"""Relocation of records: every reference to an offset is translated, everything else stays."""

from __future__ import annotations

import pytest

from orbitlog.formats.hosts import Host
from orbitlog.formats.records.message import Message, decode_message, encode_message, make_message
from orbitlog.formats.records.message_id import OffsetMessageId
from orbitlog.formats.records.property_crc import seal_record, with_room_for_crc
from orbitlog.formats.records.relocation import relocate_record

HOST4, HOST6 = Host(bytes([10, 1, 2, 3]), 10911), Host(bytes(range(16)), 10911)


def moved(message: Message, physical_offset: int = 4000) -> Message:
    record = encode_message(message)
    relocated = relocate_record(record, physical_offset, {100: 40, 200: 90}.get)
    assert len(relocated) == len(record)
    return decode_message(relocated, physical_offset=physical_offset)


@pytest.mark.parametrize("born", [HOST4, HOST6])
@pytest.mark.parametrize("store", [HOST4, HOST6])
@pytest.mark.parametrize("topic", ["Orders", "T" * 200], ids=["short", "long"])
def test_relocated_record_has_the_new_offset_and_nothing_else_changes(born: Host, store: Host, topic: str) -> None:
    message = make_message(
        topic, b"body", properties={"KEYS": "k"}, born_host=born, store_host=store, physical_offset=500, queue_offset=7
    )
    assert moved(message) == message._replace(physical_offset=4000)


@pytest.mark.parametrize(("prepared", "expected"), [(100, 40), (200, 90), (150, 150), (0, 0)])
@pytest.mark.parametrize("host", [HOST4, HOST6])
def test_committed_message_refers_to_the_moved_half_message(prepared: int, expected: int, host: Host) -> None:
    message = make_message("T", b"x", born_host=host, store_host=host, prepared_transaction_offset=prepared)
    assert moved(message).prepared_transaction_offset == expected


@pytest.mark.parametrize("name", ["ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID"])
@pytest.mark.parametrize("host", [HOST4, HOST6])
@pytest.mark.parametrize("topic", ["%RETRY%g", "T" * 200], ids=["short", "long"])
def test_offset_message_ids_in_properties_are_translated(name: str, host: Host, topic: str) -> None:
    properties = {"A": "first", name: str(OffsetMessageId(host, 100)), "Z": "last"}
    expected = {**properties, name: str(OffsetMessageId(host, 40))}
    assert moved(make_message(topic, b"x", properties=properties)).properties == expected


def test_ids_of_records_that_do_not_exist_and_texts_in_the_body_stay() -> None:
    identity = str(OffsetMessageId(HOST4, 150))
    unique = "7F000001ABCD18B4AAC2083ABEAF0000"
    body = b"ORIGIN_MESSAGE_ID\x01" + str(OffsetMessageId(HOST4, 100)).encode()
    message = make_message("T", body, properties={"ORIGIN_MESSAGE_ID": identity, "DLQ_ORIGIN_MESSAGE_ID": unique})
    assert moved(message) == message._replace(physical_offset=4000)


def test_property_crc_is_recomputed() -> None:
    message = make_message("T", b"x", properties=with_room_for_crc(b"KEYS\x01k\x02"), prepared_transaction_offset=100)
    sealed = seal_record(encode_message(message))
    relocated = relocate_record(sealed, 4000, {100: 40}.get)
    assert relocated != sealed
    assert relocated == seal_record(relocated)
