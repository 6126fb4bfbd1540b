"""Records that take the place of a damaged range: they fill it exactly, keep queues whole, and enter nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitlog.doctor.repair.log_filling import (
    FILLER_TOPIC,
    LOST_PROPERTY,
    CannotFill,
    Filling,
    Placeholder,
    fill,
    filler_bytes_min,
)
from orbitlog.formats.names import HALF_TOPIC, SCHEDULE_TOPIC
from orbitlog.formats.records.flags import TransactionType, enters_queue
from orbitlog.formats.records.message import RECORD_BYTES_MIN, Message
from orbitlog.formats.records.message_scan import LogEnd, SegmentEnd, scan_messages
from orbitlog.formats.records.properties import REAL_TOPIC

START = 70_000


def read(filling: Filling, room: int, *, ends_segment: bool = False) -> tuple[list[Message], object]:
    whole = filling.data.ljust(room, b"\0") if ends_segment else filling.data + bytes(100)
    *messages, end = scan_messages(whole, base_physical_offset=START)
    return [message for message in messages if isinstance(message, Message)], end


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(RECORD_BYTES_MIN + 6, 600), min_size=1, max_size=12),
    queues=st.lists(st.integers(0, 2), min_size=12, max_size=12),
    ends_segment=st.booleans(),
)
def test_lost_records_become_placeholders_of_the_same_queues(
    sizes: list[int], queues: list[int], ends_segment: bool
) -> None:
    """What records filled, placeholders for them and filler fill, whatever the sizes of the records were."""
    lost, position = [], 0
    for number, size in enumerate(sizes):
        queue_offset = sum(queue == queues[number] for queue in queues[:number])
        lost.append(Placeholder("Orders", queues[number], queue_offset, START + position))
        position += size
    room = position + 8 if ends_segment else position
    filling = fill(START, START + room, lost, store_timestamp_ms=77, ends_segment=ends_segment)
    messages, end = read(filling, room, ends_segment=ends_segment)
    assert isinstance(end, SegmentEnd if ends_segment else LogEnd)
    placed = [
        (message.topic, message.queue_id, message.queue_offset) for message in messages if message.topic == "Orders"
    ]
    for queue_id in range(3):
        offsets = [offset for _, queue, offset in placed if queue == queue_id]
        assert offsets == sorted(offsets)
    assert len(placed) + len(filling.left_out) == len(lost)
    assert all(message.store_timestamp_ms == 77 for message in messages)
    assert all(not enters_queue(message.sys_flag) for message in messages if message.topic == FILLER_TOPIC)


@pytest.mark.parametrize("spare", [0, 1, 2, 3, 30, 100, 105, 106, 107, 500])
def test_one_record_of_any_size(spare: int) -> None:
    room = RECORD_BYTES_MIN + len("Orders") + spare
    filling = fill(START, START + room, [Placeholder("Orders", 1, 9, START)], store_timestamp_ms=1, ends_segment=False)
    messages, _ = read(filling, room)
    assert len(filling.data) == room
    assert (messages[0].topic, messages[0].queue_id, messages[0].queue_offset) == ("Orders", 1, 9)
    assert not messages[0].body.strip()
    assert spare < 30 or messages[0].properties[LOST_PROPERTY].strip() == str(START)


def test_saved_properties_stay() -> None:
    saved = Placeholder("Orders", 0, 0, START, {"KEYS": "k1 k2", "TAGS": "T"})
    messages, _ = read(fill(START, START + 400, [saved], store_timestamp_ms=1, ends_segment=False), 400)
    assert (messages[0].properties["KEYS"], messages[0].properties["TAGS"]) == ("k1 k2", "T")


def test_what_waited_is_dropped_by_the_delivery() -> None:
    lost = [Placeholder(SCHEDULE_TOPIC, 2, 0, START), Placeholder(HALF_TOPIC, 0, 0, START + 300)]
    messages, _ = read(fill(START, START + 800, lost, store_timestamp_ms=9, ends_segment=False), 800)
    assert messages[0].properties[REAL_TOPIC] == HALF_TOPIC
    assert (messages[1].topic, messages[1].born_timestamp_ms) == (HALF_TOPIC, 0)


def test_a_range_that_nothing_is_known_of() -> None:
    room = 3 * (1 << 20) + 50
    messages, end = read(fill(START, START + room, [], store_timestamp_ms=1, ends_segment=False), room)
    assert isinstance(end, LogEnd)
    assert {message.transaction_type for message in messages} == {TransactionType.ROLLBACK}
    assert max(message.size_bytes for message in messages) <= (1 << 20) + 200


def test_too_small_for_anything() -> None:
    with pytest.raises(CannotFill, match="too few for a record"):
        fill(START, START + filler_bytes_min() - 1, [], store_timestamp_ms=1, ends_segment=False)
    with pytest.raises(CannotFill, match="end of a segment"):
        fill(START, START + 7, [], store_timestamp_ms=1, ends_segment=True)
