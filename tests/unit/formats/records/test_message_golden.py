"""Every message that the golden stores' brokers wrote, compared with the decoding of their Java code."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.checkpoint import decode_checkpoint, encode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules, queue_units
from orbitlog.formats.java import hash_map_order
from orbitlog.formats.records import compression, flags
from orbitlog.formats.records import properties as names
from orbitlog.formats.records.compression import compress_body, inflate_body
from orbitlog.formats.records.flags import CompressionType
from orbitlog.formats.records.message import Message, decode_message, encode_message
from orbitlog.formats.records.message_id import OffsetMessageId, parse_offset_message_id
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd, find_record, scan_messages
from orbitlog.formats.records.properties import decode_properties, encode_properties, join_properties
from orbitlog.formats.records.unique_id import parse_unique_id
from orbitlog.formats.store_tree import parse_index_file_name, parse_offset_file_name
from orbitlog.testing.golden import GoldenStore

GoldenCase = tuple[GoldenStore, Compat]


@pytest.fixture(params=[("golden_497", COMPAT_4_9), ("golden_550_crash", COMPAT_5_5)], ids=lambda param: param[0])
def golden_case(request: pytest.FixtureRequest) -> GoldenCase:
    name, compat = request.param
    return request.getfixturevalue(name), compat


def segments(golden: GoldenStore) -> Iterator[tuple[int, bytes]]:
    for path in sorted((golden.store / "commitlog").iterdir()):
        base = parse_offset_file_name(path.name)
        assert base is not None
        yield base, path.read_bytes()


def messages_of(golden: GoldenStore) -> list[Message]:
    return [
        found
        for base, data in segments(golden)
        for found in scan_messages(data, base_physical_offset=base)
        if isinstance(found, Message)
    ]


def as_manifest(message: Message, compat: Compat) -> dict[str, Any]:
    """Return the manifest's entry of a message."""
    inflated = inflate_body(message.body, message.sys_flag)
    properties = message.properties
    facts = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.size_bytes,
        "offsetMsgId": str(OffsetMessageId(message.store_host, message.physical_offset)),
        "uniqKey": properties.get(names.UNIQ_KEY),
        "keys": properties.get(names.KEYS),
        "tags": properties.get(names.TAGS),
        "tagsCode": queue_units(message, DeriveRules(compat=compat))[0].entry.tags_code,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "bodyLength": len(inflated),
        "bodySha256": hashlib.sha256(inflated).hexdigest(),
        "storedBodyLength": len(message.body),
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "bornHost": f"{message.born_host.ip} {message.born_host.port}",
        "storeHost": f"{message.store_host.ip} {message.store_host.port}",
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": properties,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}


def test_every_field_of_every_message(golden_case: GoldenCase) -> None:
    golden, compat = golden_case
    recorded = golden.manifest["messages"]
    messages = messages_of(golden)
    assert len(messages) == len(recorded) == golden.manifest["counts"]["messages"]
    for message, facts in zip(messages, recorded, strict=True):
        known = {name: fact for name, fact in facts.items() if fact is not None}
        assert as_manifest(message, compat) == known
        assert parse_offset_message_id(facts["offsetMsgId"]).physical_offset == message.physical_offset


def test_every_record_encodes_back_to_its_bytes(golden_case: GoldenCase) -> None:
    golden, _ = golden_case
    for base, data in segments(golden):
        for found in scan_messages(data, base_physical_offset=base):
            if isinstance(found, Message):
                start = found.physical_offset - base
                assert encode_message(found) == data[start : start + found.size_bytes]
                assert decode_message(memoryview(data), start, physical_offset=found.physical_offset) == found


def test_segments_end_where_java_states(golden_case: GoldenCase) -> None:
    golden, _ = golden_case
    ends, log_ends = [], []
    for base, data in segments(golden):
        *_, last = scan_messages(data, base_physical_offset=base)
        match last:
            case SegmentEnd(position, size_bytes):
                ends.append({"at": base + position, "blank": size_bytes})
            case LogEnd(position):
                log_ends.append(base + position)
            case other:
                pytest.fail(f"{base}: {other}")
    assert ends == golden.manifest["segmentEnds"]
    assert log_ends[0] == golden.manifest["endOfLastRecord"] == golden.manifest["afterOpen"]["maxPhyOffset"]
    last_base, last_data = list(segments(golden))[-1]
    assert log_ends[1:] in ([], [last_base]), "the broker makes the next segment before it needs it"
    assert log_ends[1:] == [] or not any(last_data)


def test_the_stores_hold_what_the_tests_rely_on(golden_case: GoldenCase) -> None:
    golden, compat = golden_case
    messages = messages_of(golden)
    versions = Counter(message.version for message in messages)
    assert set(versions) == ({1} if compat is COMPAT_4_9 else {1, 2})
    assert all(len(message.topic) > 127 for message in messages if message.version == 2)
    assert {message.born_host.is_ipv6 for message in messages} == {False, True}
    assert {len(message.properties.get(names.UNIQ_KEY, "")) for message in messages} >= {0, 32, 56}
    assert {message.transaction_type for message in messages} == {
        flags.TransactionType.NONE,
        flags.TransactionType.COMMIT,
    }
    codecs = {flags.compression_type(message.sys_flag) for message in messages if message.sys_flag & flags.COMPRESSED}
    assert codecs == {CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD}
    assert any(not message.body for message in messages)
    assert any(len(message.properties_raw) > 6000 for message in messages)
    assert -(2**31) in {queue_units(message, DeriveRules(compat=compat))[0].entry.tags_code for message in messages}


def test_lz4_bodies_are_the_same_with_and_without_the_package_lz4(
    golden_case: GoldenCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lz4.frame")
    golden, compat = golden_case
    compressed = [one for one in messages_of(golden) if flags.compression_type(one.sys_flag) is CompressionType.LZ4]
    expected = [as_manifest(message, compat) for message in compressed]
    monkeypatch.setattr(compression, "_lz4_library", lambda: None)
    assert len(compressed) > 3
    assert [as_manifest(message, compat) for message in compressed] == expected


def test_a_damaged_log_ends_where_the_real_broker_ended_it(golden_550_crash: GoldenStore) -> None:
    """Recovery accepts a record by its lengths and its body's CRC; both read the same records as good."""
    tried = 0
    for mutation in golden_550_crash.manifest["mutations"]:
        edits = mutation["edits"]
        if any(not edit["file"].startswith("commitlog/") for edit in edits):
            continue
        tried += 1
        (name,) = {edit["file"].removeprefix("commitlog/") for edit in edits}
        data = bytearray((golden_550_crash.store / "commitlog" / name).read_bytes())
        for edit in edits:
            if edit["op"] == "zero":
                data[edit["offset"] : edit["offset"] + edit["length"]] = bytes(edit["length"])
            else:
                data[edit["offset"]] ^= edit["value"]
        *_, last = scan_messages(data, base_physical_offset=int(name))
        assert isinstance(last, Damage | LogEnd)
        assert int(name) + last.position == mutation["afterLoad"]["maxPhyOffset"], mutation["name"]
        if isinstance(last, Damage) and tried > 2:
            after = find_record(data, last.position + 1, base_physical_offset=int(name))
            assert after in {message.physical_offset - int(name) for message in messages_of(golden_550_crash)}
    assert tried == 4


# Properties


def listed_names(raw: bytes) -> list[str]:
    return [item.partition("\x01")[0] for item in raw.decode().split("\x02") if item]


def test_property_maps_encode_back_to_the_stored_bytes(golden_case: GoldenCase) -> None:
    """Where each name stands once with a value; the order is that of the map which a Java program filled."""
    golden, compat = golden_case
    counts: Counter[str] = Counter()
    for message in messages_of(golden):
        raw, properties = message.properties_raw, message.properties
        if listed_names(raw) != list(properties):
            counts["doubled" if len(set(listed_names(raw))) == len(properties) else "empty"] += 1
            continue
        counts["encoded"] += 1
        assert encode_properties(properties, trailing_separator=compat.trailing_property_separator) == raw
        orders = {capacity: hash_map_order(properties, capacity=capacity) for capacity in (16, 128)}
        assert list(properties) in orders.values()
        counts["as the broker's map"] += list(properties) == orders[compat.property_map_capacity]
    if compat is COMPAT_4_9:
        assert counts == {"encoded": 503, "as the broker's map": 503, "doubled": 44}
    else:
        # A batch member, an op, recall or POP retry message keeps the order of a small map.
        assert counts == {"encoded": 885, "as the broker's map": 758, "empty": 1}


def test_batch_members_of_4_9_have_the_properties_of_the_batch_after_their_own(golden_497: GoldenStore) -> None:
    members = [
        message for message in messages_of(golden_497) if listed_names(message.properties_raw).count("WAIT") == 2
    ]
    assert len(members) == 44
    batch_level: set[bytes] = set()
    for member in members:
        items = member.properties_raw.split(b"\x02")
        cut = max(number for number, item in enumerate(items) if item.startswith(b"CLUSTER\x01"))
        own, added = b"\x02".join(items[:cut]), b"\x02".join(items[cut:])
        assert join_properties(own, added) == member.properties_raw
        assert decode_properties(own) | decode_properties(added) == member.properties
        batch_level.add(added)
    assert batch_level == {b"CLUSTER\x01DefaultCluster\x02WAIT\x01true"}


def test_whether_a_property_string_ends_with_a_separator(golden_case: GoldenCase) -> None:
    golden, compat = golden_case
    endings = {message.properties_raw[-1:] == b"\x02" for message in messages_of(golden) if message.properties_raw}
    assert endings == {compat.trailing_property_separator}


# Ids, bodies, other files


def test_unique_keys_are_parsed_and_contain_the_born_timestamp(golden_case: GoldenCase) -> None:
    golden, _ = golden_case
    month_ms, previous_month_ms = 1793491200000, 1790812800000  # 2026-11-01 and 2026-10-01, UTC as the brokers' clients
    parsed = 0
    for message in messages_of(golden):
        text = message.properties.get(names.UNIQ_KEY, "")
        if len(text) not in (32, 56):
            assert not text or "@" in text, "5.x gives POP check points and acks a key of another kind"
            continue
        identity = parse_unique_id(text)
        assert str(identity) == text
        born_ms = identity.born_timestamp_ms(month_ms, previous_month_ms, now_ms=message.store_timestamp_ms + 1)
        assert month_ms < born_ms <= message.store_timestamp_ms
        parsed += 1
    assert parsed > 500


@pytest.mark.skipif("ng" in zlib.ZLIB_RUNTIME_VERSION, reason="zlib-ng compresses to other bytes")
def test_zlib_bodies_compress_back_to_their_bytes(golden_case: GoldenCase) -> None:
    golden, _ = golden_case
    compared = 0
    for message in messages_of(golden):
        if message.sys_flag & (flags.COMPRESSED | flags.COMPRESSION_MASK) == 0x301:
            body = inflate_body(message.body, message.sys_flag)
            compared += 1
            assert compress_body(body, CompressionType.ZLIB) == message.body
    assert compared > 0


def test_the_checkpoint_encodes_back_to_its_bytes(golden_case: GoldenCase) -> None:
    golden, compat = golden_case
    raw = (golden.store / "checkpoint").read_bytes()
    checkpoint = decode_checkpoint(raw)
    assert encode_checkpoint(checkpoint, compat) == raw
    assert checkpoint.index_msg_timestamp_ms > 0
    last = messages_of(golden)[-1]
    if compat is COMPAT_4_9:
        assert checkpoint.physic_msg_timestamp_ms == checkpoint.logics_msg_timestamp_ms == last.store_timestamp_ms
    else:
        assert checkpoint.logics_physical_offset in {message.physical_offset for message in messages_of(golden)}


def test_every_name_in_the_store_is_known(golden_case: GoldenCase) -> None:
    golden, _ = golden_case
    assert all(parse_index_file_name(path.name) for path in (golden.store / "index").iterdir())
    for path in (golden.store / "consumequeue").glob("*/*/*"):
        assert parse_offset_file_name(path.name) is not None
