"""Records made from templates are those that `encode_placed` makes."""

from __future__ import annotations

import struct
from random import Random

import pytest

from orbitlog.formats.hosts import parse_host
from orbitlog.formats.records.flags import COMPRESSED
from orbitlog.formats.records.message import Message, encode_placed, make_message, measure_record
from orbitlog.formats.records.record_template import Row, encode_run, template_of

BORN, STORED = parse_host("10.0.0.7:4321"), parse_host("127.0.0.1:10911")
ROOM = 1 << 20


def any_message(chance: Random) -> Message:
    return make_message(
        chance.choice(["T", "Orders", "x" * 127]),
        chance.randbytes(chance.choice([0, 1, 128, 5000])),
        properties=chance.choice([b"", b"KEYS\x01k\x02", b"x" * 32767]),
        queue_id=chance.randrange(4),
        sys_flag=chance.choice([0, COMPRESSED, 0x100]),
        flag=chance.choice([0, -7, 2**31 - 1]),
        born_timestamp_ms=chance.choice([0, 1_700_000_000_000]),
        reconsume_times=chance.choice([0, 3]),
        prepared_transaction_offset=chance.choice([0, 77]),
        born_host=BORN,
        store_host=STORED,
    )


def row_of(message: Message) -> Row:
    template = template_of(message)
    assert template is not None
    return template, *measure_record(message)[1][1:]


def test_a_run_is_what_its_messages_are_one_by_one() -> None:
    for seed in range(20):
        chance = Random(seed)
        messages = [any_message(chance) for _ in range(10)]
        queue_offsets = {("Orders", 1): 50}
        expected, places, following, end = [], [], dict(queue_offsets), 1000
        for message in messages:
            queue_offset = following.get((message.topic, message.queue_id), 0)
            following[message.topic, message.queue_id] = queue_offset + 1
            expected.append(encode_placed(measure_record(message), queue_offset, end, 99))
            places.append((end, queue_offset))
            end += len(expected[-1])
        raw, run_places = encode_run(list(map(row_of, messages)), queue_offsets, 1000, 99, ROOM)
        assert raw == b"".join(expected)
        assert run_places == places
        assert queue_offsets == following


def test_those_that_have_room_are_taken() -> None:
    message = make_message("T", b"body", born_host=BORN, store_host=STORED)
    size_bytes = message.size_bytes
    for room, count in ((0, 0), (size_bytes - 1, 0), (size_bytes, 1), (2 * size_bytes, 2), (3 * size_bytes - 1, 2)):
        queue_offsets: dict[tuple[str, int], int] = {}
        raw, places = encode_run([row_of(message)] * 3, queue_offsets, 0, 1, room)
        assert len(places) == count and len(raw) == count * size_bytes
        assert queue_offsets.get(("T", 0), 0) == count


def test_only_plain_messages_have_templates() -> None:
    assert template_of(make_message("x" * 128, b"")) is None
    assert template_of(make_message("T", b"", version=2)) is None
    assert template_of(make_message("T", b"", born_host=parse_host("[2001:db8::7]:1"))) is None
    assert template_of(make_message("T", b"", store_host=parse_host("[2001:db8::7]:1"))) is None


def test_run_with_a_number_out_of_range_does_not_advance_the_queue() -> None:
    template, queue, _, *others = row_of(make_message("T", b"body", born_host=BORN, store_host=STORED))
    queue_offsets = {("T", 0): 5}
    with pytest.raises(struct.error):
        encode_run([(template, queue, 1 << 63, *others)], queue_offsets, 0, 1, ROOM)  # type: ignore[list-item]
    assert queue_offsets == {("T", 0): 5}
