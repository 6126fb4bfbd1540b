"""Targets of delayed, timer and half messages."""

from __future__ import annotations

import pytest

from orbitlog.errors import FormatError
from orbitlog.formats import names
from orbitlog.formats.records.real_target import QUEUE_ID_MAX, bounded_number, real_target


def test_target_is_the_topic_and_queue_of_the_properties() -> None:
    assert real_target({"REAL_TOPIC": "%RETRY%G", "REAL_QID": "3"}) == ("%RETRY%G", 3)
    assert real_target({"REAL_TOPIC": "rmq_sys_REVIVE_LOG_c", "REAL_QID": str(QUEUE_ID_MAX)}).queue_id == QUEUE_ID_MAX


@pytest.mark.parametrize("topic", ["", "a/b", "..", "x" * 128, *sorted(names.WORKING_TOPICS)])
def test_target_with_an_invalid_topic_is_refused(topic: str) -> None:
    with pytest.raises(FormatError):
        real_target({"REAL_TOPIC": topic, "REAL_QID": "0"})


@pytest.mark.parametrize("queue_id", ["", "-1", "+1", "1.0", " 1", "\u0663", str(QUEUE_ID_MAX + 1), "9" * 100_000])
def test_target_with_an_invalid_queue_is_refused(queue_id: str) -> None:
    with pytest.raises(FormatError):
        real_target({"REAL_TOPIC": "Orders", "REAL_QID": queue_id})


def test_bounded_number_is_none_outside_its_range() -> None:
    assert [bounded_number(text, 99) for text in ("0", "99", "100", "007", "x", "")] == [0, 99, None, None, None, None]
