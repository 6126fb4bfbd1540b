"""Stored messages: counts by topic, and one wake-up for each append."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.stored_messages import StoredMessages
from orbitlog.broker.tables.statistics import TOPIC_PUT_NUMS, TOPIC_PUT_SIZE, Statistics
from orbitlog.formats.records.message import make_message
from orbitlog.formats.records.record_template import Row, encode_run, template_of


class Broker:
    """The part of a broker's state that `StoredMessages` uses."""

    def __init__(self) -> None:
        self.statistics = Statistics(0)
        self.wake_ups = 0
        self.stored = StoredMessages(
            cast(BrokerState, SimpleNamespace(statistics=self.statistics, message_appended=self.wake_up))
        )

    def wake_up(self) -> None:
        self.wake_ups += 1

    def counted(self, topic: str) -> tuple[int, int, int]:
        messages, size = self.statistics.find(TOPIC_PUT_NUMS, topic), self.statistics.find(TOPIC_PUT_SIZE, topic)
        return (messages.total, messages.times, size.total) if messages and size else (0, 0, 0)


def row(topic: str, body: bytes) -> Row:
    template = template_of(make_message(topic, b""))
    assert template is not None
    return template, (topic, 0), 1, 0, body, b"KEYS\x01k"


def test_batch_is_one_occasion_and_one_wake_up() -> None:
    broker = Broker()
    broker.stored.note(make_message("Orders", b"x"), 3, 300)
    assert broker.counted("Orders") == (3, 1, 300)
    assert broker.wake_ups == 1


@pytest.mark.parametrize("stored", [3, 2, 1])
@pytest.mark.parametrize("topics", [("A", "A", "A"), ("A", "B", "A")])
def test_rows_are_counted_as_far_as_they_were_stored(topics: tuple[str, ...], stored: int) -> None:
    broker = Broker()
    rows = [row(topic, b"x" * (number + 1)) for number, topic in enumerate(topics)]
    raw, places = encode_run(rows, {}, 4096, 1, 1 << 20)
    sizes = [after - before for before, after in zip(*_bounds([place[0] for place in places], len(raw)), strict=True)]
    broker.stored.note_rows(rows, places[:stored], len(set(topics)) == 1)
    for topic in set(topics):
        own = [size for size, name in zip(sizes[:stored], topics, strict=False) if name == topic]
        assert broker.counted(topic) == (len(own), len(own), sum(own))
    assert broker.wake_ups == 1


def _bounds(offsets: list[int], size_bytes: int) -> tuple[list[int], list[int]]:
    return offsets, [*offsets[1:], offsets[0] + size_bytes]
