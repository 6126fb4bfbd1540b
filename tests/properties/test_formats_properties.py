"""What holds for every value and for every damaged byte: a codec gives a value or a `FormatError`, nothing else."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from orbitlog.errors import BadField, ChecksumMismatch, FormatError, LimitExceeded, Truncated
from orbitlog.formats import java
from orbitlog.formats.compat import COMPAT_5_5, COMPATS
from orbitlog.formats.derived.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from orbitlog.formats.derived.derive import DeriveRules, index_hashes, queue_units
from orbitlog.formats.derived.derived_files import DerivedFiles
from orbitlog.formats.derived.index_layout import (
    INDEX_SLOT,
    IndexEntry,
    IndexHeader,
    IndexLayout,
    IndexWriter,
    decode_header,
    decode_index_entry,
    encode_header,
    encode_index_entry,
    infer_layout,
)
from orbitlog.formats.derived.queue_entry import QueueEntry, decode_entry, encode_entry, locate_entry, scan_entries
from orbitlog.formats.hosts import Host, decode_host, parse_host
from orbitlog.formats.records import flags
from orbitlog.formats.records.batch import BatchMember, decode_batch, encode_batch, expand_batch
from orbitlog.formats.records.compression import compress_body, inflate_body
from orbitlog.formats.records.flags import CompressionType
from orbitlog.formats.records.message import RECORD_PREFIX, Message, decode_message, encode_message, make_message
from orbitlog.formats.records.message_id import OffsetMessageId, parse_offset_message_id
from orbitlog.formats.records.message_scan import Damage, LogEnd, SegmentEnd, find_record, read_at, scan_messages
from orbitlog.formats.records.properties import (
    append_crc_property,
    check_crc_property,
    decode_properties,
    encode_properties,
    join_properties,
)
from orbitlog.formats.records.unique_id import UniqueId, parse_unique_id
from orbitlog.formats.store_tree import offset_file_name, parse_offset_file_name, parse_queue_id
from orbitlog.testing import strategies as own

MASKS = (0xFF, *(1 << bit for bit in range(8)))


def flips(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Every byte of `data` inverted, and every single bit."""
    for position in range(len(data)):
        for mask in MASKS:
            damaged = bytearray(data)
            damaged[position] ^= mask
            yield position, mask, bytes(damaged)


# Records


@given(own.messages())
def test_a_record_survives_the_round_trip(message: Message) -> None:
    record = encode_message(message)
    assert len(record) == message.size_bytes
    assert decode_message(record, physical_offset=message.physical_offset) == message


@given(own.messages(), st.binary(max_size=20), st.binary(max_size=20))
def test_a_record_reads_the_same_however_it_is_fed(message: Message, before: bytes, after: bytes) -> None:
    data = before + encode_message(message) + after
    for buffer in (data, bytearray(data), memoryview(data), memoryview(bytearray(b"+" + data))[1:]):
        assert decode_message(buffer, len(before), physical_offset=message.physical_offset) == message


@given(own.messages())
def test_every_truncation_of_a_record_is_noticed(message: Message) -> None:
    record = encode_message(message)
    for size in range(len(record)):
        with pytest.raises(Truncated):
            decode_message(record[:size])


@given(own.messages())
def test_every_flipped_bit_of_a_record_gives_a_value_or_a_format_error(message: Message) -> None:
    record = encode_message(message)
    for position, mask, damaged in flips(record):
        try:
            decoded = decode_message(damaged, physical_offset=message.physical_offset)
        except FormatError as error:
            assert error.position == 0
        else:
            assert decoded != message
            assert encode_message(decoded) == damaged, (position, mask)


@given(own.messages(), st.integers(0, 2**32 - 1), st.data())
def test_any_four_bytes_anywhere_in_a_record(message: Message, value: int, data: st.DataObject) -> None:
    record = bytearray(encode_message(message))
    struct.pack_into(">I", record, data.draw(st.integers(0, len(record) - 4)), value)
    try:
        decoded = decode_message(record, check_crc=False)
    except FormatError:
        return
    assert encode_message(decoded) == record[: decoded.size_bytes]


def parts_of(message: Message) -> dict[str, range]:
    """Name every byte of the record."""
    ipv6 = [len(message.born_host_raw) == 20, len(message.store_host_raw) == 20]
    parts: dict[str, range] = {}
    position = 0

    def take(name: str, size_bytes: int) -> None:
        nonlocal position
        parts[name] = range(position, position + size_bytes)
        position += size_bytes

    for field in RECORD_PREFIX.fields:
        take(field.name, 20 if field.name.endswith("host_raw") and ipv6.pop(0) else field.size_bytes)
    take("body", len(message.body))
    take("topic_length", message.version)
    take("topic", len(message.topic.encode()))
    take("properties_length", 2)
    take("properties", len(message.properties_raw))
    assert position == message.size_bytes
    return parts


# What a reader that checks offset, CRC and lengths cannot notice. Nothing may be added to this set.
UNDETECTED = {
    "queue_id",
    "flag",
    "queue_offset",
    "sys_flag",
    "born_timestamp_ms",
    "born_host_raw",
    "store_timestamp_ms",
    "store_host_raw",
    "reconsume_times",
    "prepared_transaction_offset",
    "topic",
    "properties",
}
IPV4, IPV6 = Host(b"\x0a\x01\x02\x03", 12345), Host(bytes(range(16)), 54321)


@pytest.mark.parametrize(
    "message",
    [
        make_message(
            "TopicTest", b"hello", properties={"TAGS": "a"}, born_host=IPV4, store_host=IPV4, physical_offset=77
        ),
        make_message(
            "TopicTest", b"hello", properties={"TAGS": "a"}, born_host=IPV6, store_host=IPV4, physical_offset=77
        ),
        make_message(
            "TopicTest", b"hello", properties={"TAGS": "a"}, born_host=IPV6, store_host=IPV6, physical_offset=77
        ),
        make_message("%RETRY%" + "t" * 200, b"hello", properties={"TAGS": "a"}, physical_offset=77),
        make_message("T", b"", properties={"TAGS": "a"}, physical_offset=77),
    ],
    ids=["ipv4", "born ipv6", "both ipv6", "version 2", "empty body"],
)
def test_exactly_these_fields_may_change_unnoticed(message: Message) -> None:
    parts = parts_of(message)
    name_of = {position: name for name, positions in parts.items() for position in positions}
    accepted: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for position, mask, damaged in flips(encode_message(message)):
        try:
            decode_message(damaged, physical_offset=message.physical_offset)
        except FormatError:
            continue
        name = name_of[position]
        accepted[name].add((position - parts[name].start, mask))
    assert set(accepted) == UNDETECTED
    for name in UNDETECTED - {"sys_flag", "topic"}:
        assert accepted[name] == {(place, mask) for place in range(len(parts[name])) for mask in MASKS}, name
    # The two bits that size the hosts are noticed, unless both change and the hosts only swap their sizes; the other
    # thirty are not.
    noticed = {(3, flags.BORN_HOST_IPV6), (3, flags.STORE_HOST_IPV6)}
    if message.born_host.is_ipv6 == message.store_host.is_ipv6:
        noticed.add((3, 0xFF))
    assert {(place, mask) for place in range(4) for mask in MASKS} - accepted["sys_flag"] == noticed
    # Of an ASCII topic, what stays UTF-8: any change that leaves the top bit alone.
    assert accepted["topic"] == {(place, mask) for place in range(len(parts["topic"])) for mask in MASKS if mask < 0x80}


@given(own.messages())
def test_without_the_crc_only_the_body_is_less_safe(message: Message) -> None:
    record = encode_message(message)
    parts = parts_of(message)
    for position in [*parts["body"], *parts["body_crc"]]:
        damaged = bytearray(record)
        damaged[position] ^= 0xFF
        with pytest.raises(ChecksumMismatch):
            decode_message(damaged, physical_offset=message.physical_offset)
        assert encode_message(decode_message(damaged, check_crc=False)) == damaged


@given(own.messages())
def test_the_record_crc_covers_every_byte(message: Message) -> None:
    """With 5.2's `__CRC32#` at its end no byte of a record may change unnoticed."""
    bare = message._replace(properties_raw=b"a\x011\x02" + bytes(20))
    start = encode_message(bare)[:-20]
    record = start + append_crc_property(start)
    assert check_crc_property(record)
    decode_message(record)
    for position in range(len(start)):
        damaged = bytearray(record)
        damaged[position] ^= 0xFF
        with pytest.raises(ChecksumMismatch):
            check_crc_property(damaged)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_decoder_fail_otherwise(data: bytes) -> None:
    for magic in (b"", b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94"):
        for size in (b"", struct.pack(">i", len(data) + len(magic) + 4)):
            list(scan_messages(size + magic + data))


# Segments


def expected_end(segment: own.Segment) -> list[SegmentEnd | LogEnd]:
    if segment.blank_position is not None:
        return [SegmentEnd(segment.end_position, len(segment.data) - segment.end_position)]
    return [LogEnd(segment.end_position)] if segment.end_position < len(segment.data) else []


@given(own.segments())
def test_a_segment_is_read_to_its_end(segment: own.Segment) -> None:
    expected = [*segment.messages, *expected_end(segment)]
    for buffer in (segment.data, bytearray(segment.data), memoryview(segment.data)):
        assert list(scan_messages(buffer, base_physical_offset=segment.base_physical_offset)) == expected
        assert list(scan_messages(buffer)) == expected
    for number, position in enumerate(segment.positions):
        assert list(scan_messages(segment.data, position)) == expected[number:]


@given(own.segments(messages_min=1, messages_max=3))
def test_a_segment_cut_anywhere_gives_whole_records_and_then_damage(segment: own.Segment) -> None:
    ends = [*segment.positions[1:], segment.end_position]
    for size in range(segment.end_position):
        *messages, last = [*scan_messages(segment.data[:size]), None]
        whole = sum(end <= size for end in ends)
        if size in (0, *ends[:-1]):
            assert [*messages, last] == [*segment.messages[:whole], None]
        else:
            assert messages[:-1] == list(segment.messages[:whole])
            assert isinstance(messages[-1], Damage)
            assert isinstance(messages[-1].error, Truncated)


@given(own.segments(messages_min=1))
def test_find_record_steps_from_record_to_record(segment: own.Segment) -> None:
    base = segment.base_physical_offset
    places = [*segment.positions, *([segment.blank_position] if segment.blank_position is not None else [])]
    for start in range(0, len(segment.data), 7):
        expected = next((place for place in places if place >= start), None)
        assert find_record(segment.data, start, base_physical_offset=base) == expected


@given(own.segments(messages_min=2), st.data())
def test_find_record_gets_over_random_damage(segment: own.Segment, data: st.DataObject) -> None:
    base = segment.base_physical_offset
    start = data.draw(st.integers(0, segment.end_position - 1))
    junk = data.draw(st.binary(min_size=1, max_size=150))
    damaged = bytearray(segment.data)
    damaged[start : start + len(junk)] = junk[: len(damaged) - start]
    assert len(damaged) == len(segment.data)
    read = list(scan_messages(damaged, base_physical_offset=base))
    stopped = read[-1] if read else None
    assume(isinstance(stopped, Damage))
    assert isinstance(stopped, Damage)
    truth = [
        position
        for position in segment.positions
        if position > stopped.position and isinstance(read_at(damaged, position, base_physical_offset=base), Message)
    ]
    if segment.blank_position is not None and start + len(junk) <= segment.blank_position:
        truth.append(segment.blank_position)
    found = find_record(damaged, stopped.position + 1, base_physical_offset=base)
    if truth:
        assert found == truth[0]
    else:
        assert found in (None, segment.blank_position)


# The other codecs


@given(own.property_maps(), st.booleans())
def test_properties_survive_the_round_trip(properties: dict[str, str], trailing: bool) -> None:
    raw = encode_properties(properties, trailing_separator=trailing)
    assert decode_properties(raw) == properties
    assert list(decode_properties(raw)) == list(properties)
    assert raw.endswith(b"\x02") == (trailing and bool(properties))


@given(own.property_maps(), own.property_maps(), st.booleans(), st.booleans())
def test_joined_properties_are_both_and_the_later_wins(
    member: dict[str, str], batch: dict[str, str], member_trailing: bool, batch_trailing: bool
) -> None:
    joined = join_properties(
        encode_properties(member, trailing_separator=member_trailing),
        encode_properties(batch, trailing_separator=batch_trailing),
    )
    assert decode_properties(joined) == member | batch


@given(st.binary(max_size=60))
def test_any_bytes_are_properties(data: bytes) -> None:
    for name, value in decode_properties(data).items():
        assert name
        assert value
        assert "\x01" not in name
        assert "\x02" not in name + value


@given(own.queue_entries())
def test_queue_entries(entry: QueueEntry) -> None:
    raw = encode_entry(entry)
    assert decode_entry(raw) == entry
    assert list(scan_entries(raw * 3 + bytes(20))) == [entry] * 3
    for _, _, damaged in flips(raw):
        try:
            other = decode_entry(damaged)
        except BadField:
            continue
        assert other is None or encode_entry(other) == damaged


@given(st.integers(0, 2**50), st.integers(1, 10**6))
def test_a_unit_is_located_in_its_file(queue_offset: int, units: int) -> None:
    base, position = locate_entry(queue_offset, units * 20)
    assert base + position == queue_offset * 20
    assert base % (units * 20) == position % 20 == 0
    assert 0 <= position < units * 20


@given(own.index_headers())
def test_index_headers(header: IndexHeader) -> None:
    raw = encode_header(header)
    assert decode_header(raw) == header
    for _, _, damaged in flips(raw):
        try:
            other = decode_header(damaged)
        except BadField:
            continue
        assert encode_header(other) == damaged or damaged[36:40] == bytes(4)


@given(own.index_entries(), st.integers(0, 9))
def test_index_entries(entry: IndexEntry, position: int) -> None:
    raw = encode_index_entry(entry)
    assert decode_index_entry(bytes(position) + raw, position) == entry


@given(own.checkpoints())
def test_checkpoints(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint, COMPAT_5_5)) == checkpoint
    for compat in COMPATS.values():
        kept = decode_checkpoint(encode_checkpoint(checkpoint, compat))
        assert all(getattr(kept, name) == getattr(checkpoint, name) for name in compat.checkpoint_fields)
    assert checkpoint.min_timestamp_ms >= 0
    assert checkpoint.min_timestamp_index_ms <= checkpoint.min_timestamp_ms


@given(st.lists(own.batch_members(), min_size=1, max_size=5))
def test_batches(members: list[BatchMember]) -> None:
    raw = encode_batch(members)
    assert decode_batch(raw) == members
    expanded = expand_batch(make_message("T", raw))
    assert [(record.body, record.flag) for record in expanded] == [(member.body, member.flag) for member in members]
    for size in range(1, len(raw)):
        try:
            shorter = decode_batch(raw[:size])
        except Truncated:
            continue
        assert shorter == members[: len(shorter)]


@given(st.lists(own.batch_members(), min_size=1, max_size=2))
def test_every_flipped_bit_of_a_batch(members: list[BatchMember]) -> None:
    for _, _, damaged in flips(encode_batch(members)):
        try:
            decoded = decode_batch(damaged)
        except FormatError:
            continue
        assert sum(len(member.body) + len(member.properties_raw) + 22 for member in decoded) == len(damaged)


@given(own.hosts())
def test_hosts(host: Host) -> None:
    assert decode_host(host.encode()) == host
    assert parse_host(str(host)) == host
    assert parse_host(f"[{host.ip}]:{host.port}") == host


@given(own.offset_message_ids())
def test_offset_message_ids(identity: OffsetMessageId) -> None:
    assert parse_offset_message_id(str(identity)) == identity
    assert len(str(identity)) == (56 if identity.store_host.is_ipv6 else 32)


@given(own.unique_ids())
def test_unique_ids(identity: UniqueId) -> None:
    assert parse_unique_id(str(identity)) == identity
    assert str(parse_unique_id(str(identity).lower())) == str(identity)


@pytest.mark.parametrize("parse", [parse_offset_message_id, parse_unique_id, parse_host])
@given(text=st.text(max_size=60) | st.text("0123456789abcdefABCDEF :", min_size=28, max_size=60))
@example(text="0" * 32)
@example(text="0" * 56)
def test_any_text_is_an_id_or_none(parse: Callable[[str], object], text: str) -> None:
    try:
        parse(text)
    except BadField as error:
        assert len(str(error)) < 300


@given(own.physical_offsets())
def test_offset_file_names(base: int) -> None:
    name = offset_file_name(base)
    assert len(name) == 20
    assert parse_offset_file_name(name) == base


@given(st.text(max_size=25) | st.text("0123456789-", max_size=25))
def test_any_text_is_a_file_name_or_none(text: str) -> None:
    base = parse_offset_file_name(text)
    assert base is None or offset_file_name(base) == text
    queue_id = parse_queue_id(text)
    assert queue_id is None or str(queue_id) == text


@pytest.mark.parametrize("kind", CompressionType)
@given(body=st.binary(max_size=300) | st.binary(max_size=5).map(lambda part: part * 400), data=st.data())
def test_compressed_bodies(kind: CompressionType, body: bytes, data: st.DataObject) -> None:
    sys_flag = flags.with_compression(0, kind)
    packed = compress_body(body, kind)
    assert inflate_body(packed, sys_flag) == body
    assert inflate_body(packed, sys_flag, limit=len(body)) == body
    if body:
        with pytest.raises(LimitExceeded):
            inflate_body(packed, sys_flag, limit=len(body) - 1)
    with pytest.raises(BadField):
        inflate_body(packed[: data.draw(st.integers(0, len(packed) - 1))], sys_flag)
    for _, _, damaged in flips(packed[: data.draw(st.integers(1, 40))]):
        try:
            inflate_body(damaged + packed[len(damaged) :], sys_flag, limit=10_000)
        except (BadField, LimitExceeded):
            continue


# Java


@given(own.ints(), own.longs(), st.integers(-(2**70), 2**70))
def test_widths(small: int, large: int, any_size: int) -> None:
    assert (java.to_int(small), java.to_long(large)) == (small, large)
    assert struct.pack(">i", java.to_int(any_size)) == (any_size & 0xFFFFFFFF).to_bytes(4, "big")
    assert struct.pack(">q", java.to_long(any_size)) == (any_size & (2**64 - 1)).to_bytes(8, "big")


@given(own.longs(), own.longs().filter(bool))
def test_division_truncates(dividend: int, divisor: int) -> None:
    quotient = java.divide(dividend, divisor)
    remainder = dividend - quotient * divisor
    assert abs(remainder) < abs(divisor)
    assert remainder == 0 or (remainder < 0) == (dividend < 0)


@given(st.text(), st.text())
def test_a_hash_of_two_texts_follows_from_theirs(left: str, right: str) -> None:
    assume(not ("\ud800" <= left[-1:] < "\udc00" and "\udc00" <= right[:1] < "\ue000"))
    shifted = java.string_hash(left) * pow(31, java.utf16_length(right), 2**32)
    assert java.string_hash(left + right) == java.to_int(shifted + java.string_hash(right))


@given(st.binary(max_size=30))
def test_any_bytes_are_text(data: bytes) -> None:
    text = java.utf8_decode(data)
    assert java.utf8_decode(java.utf8_encode(text)) == text
    if "\ufffd" not in text:
        assert java.utf8_encode(text) == data


@given(st.text("ab ", max_size=8))
def test_splitting_loses_only_empty_ends(text: str) -> None:
    parts = java.split(text, " ")
    assert " ".join(parts) == text.rstrip(" ")
    assert parts == [""] or not parts or parts[-1]


@given(st.lists(own.texts(max_size=3), max_size=60), st.sampled_from([16, 128]))
def test_a_hash_map_holds_each_key_once(keys: list[str], capacity: int) -> None:
    ordered = java.hash_map_order(keys, capacity=capacity)
    assert sorted(ordered) == sorted(set(keys))
    assert java.hash_map_order(ordered, capacity=capacity) == ordered, "putting them in that order changes nothing"


# Index files


@st.composite
def index_files(draw: st.DrawFn) -> tuple[IndexLayout, bytes, list[tuple[int, int]]]:
    """A file with at least one key, as a writer leaves it: layout, bytes, and what was put."""
    layout = draw(own.index_layouts())
    buffer = bytearray(layout.file_bytes)
    writer = IndexWriter(buffer, layout)
    put: list[tuple[int, int]] = []
    physical_offset, store_ms = draw(st.sampled_from([0, 1, 4096])), 1_600_000_000_000
    for keys in draw(st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3), min_size=1, max_size=12)):
        for hashed_key in keys:
            if writer.put(hashed_key, physical_offset, store_ms):
                put.append((hashed_key, physical_offset))
        physical_offset += draw(st.integers(91, 3000))
        store_ms += draw(st.integers(0, 3000))
    return layout, bytes(buffer), put


@given(index_files())
def test_every_key_put_is_found_newest_first(file: tuple[IndexLayout, bytes, list[tuple[int, int]]]) -> None:
    layout, data, put = file
    header = decode_header(data)
    assert header.key_count == len(put)
    assert header.hash_slot_count == len({hashed_key % layout.slot_count for hashed_key, _ in put})
    for wanted in {hashed_key for hashed_key, _ in put}:
        (number,) = INDEX_SLOT.struct.unpack_from(data, layout.slot_position(wanted))
        found = []
        while number:
            entry = decode_index_entry(data, layout.entry_position(number))
            if entry.key_hash == wanted:
                found.append(entry.physical_offset)
            assert entry.previous_entry < number
            number = entry.previous_entry
        assert found == [physical_offset for hashed_key, physical_offset in reversed(put) if hashed_key == wanted]


@given(index_files())
def test_a_layout_is_inferred_right_or_not_at_all(file: tuple[IndexLayout, bytes, list[tuple[int, int]]]) -> None:
    layout, data, put = file
    inferred = infer_layout(data)
    assert inferred in (layout, None)
    if put[-1][1] > 0:
        assert inferred == layout


@given(index_files(), st.data())
def test_no_damage_makes_inferring_fail_otherwise(
    file: tuple[IndexLayout, bytes, list[tuple[int, int]]], data: st.DataObject
) -> None:
    damaged = bytearray(file[1])
    for _ in range(3):
        damaged[data.draw(st.integers(0, 60 if len(damaged) > 60 else 39))] ^= data.draw(st.integers(1, 255))
    try:
        layout = infer_layout(damaged)
    except FormatError:
        return
    assert layout is None or layout.file_bytes == len(damaged)


# Derived files


@given(st.lists(own.messages(), max_size=6))
def test_deriving_from_any_messages_gives_files_or_a_format_error(messages: list[Message]) -> None:
    files = DerivedFiles(DeriveRules(), queue_file_bytes=100, index_layout=IndexLayout(3, 4))
    keys = 0
    for message in messages:
        try:
            files.add([message])
        except FormatError:
            assert message.queue_offset < 0
            continue
        keys += len(index_hashes(message, COMPAT_5_5))
        for unit in queue_units(message, DeriveRules()):
            base, position = locate_entry(unit.queue_offset, 100)
            assert decode_entry(files.queues[unit.topic, unit.queue_id][base], position) == unit.entry
    assert sum(decode_header(file).key_count for file in files.index_files) == keys
