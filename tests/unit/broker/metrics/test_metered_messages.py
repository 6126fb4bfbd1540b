"""Metered messages: stored messages by topic and type, on the fast path and on the slow path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from orbitlog.broker.metrics.metered_messages import MeteredMessages, message_type
from orbitlog.broker.metrics.traffic_metrics import TrafficMetrics
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.statistics import Statistics
from orbitlog.formats import names
from orbitlog.formats.records.message import make_message
from orbitlog.formats.records.record_template import Row, encode_run, template_of

PLAIN, ORDERED, HALF = b"KEYS\x01k", b"KEYS\x01k\x02__SHARDINGKEY\x01s", b"TRAN_MSG\x01true\x02REAL_TOPIC\x01T\x02"


class Metered:
    """Metered messages of a broker without a store."""

    def __init__(self) -> None:
        state = SimpleNamespace(statistics=Statistics(0), message_appended=lambda: None, now_ms=lambda: 10_000)
        self.traffic = TrafficMetrics(cast(BrokerState, state))
        self.stored = MeteredMessages(cast(BrokerState, state), self.traffic)

    def note_rows(self, rows: list[Row], *, is_one_topic: bool) -> list[int]:
        """Note rows; return the sizes of their records."""
        raw, places = encode_run(rows, {}, 4096, 1, 1 << 24)
        self.stored.note_rows(rows, places, is_one_topic)
        ends = [place[0] for place in places[1:]] + [4096 + len(raw)]
        return [end - place[0] for end, place in zip(ends, places, strict=True)]


def row(body: bytes, properties: bytes = PLAIN, topic: str = "T") -> Row:
    template = template_of(make_message(topic, b""))
    assert template is not None
    return template, (topic, 0), 1, 0, body, properties


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        (PLAIN, "normal"),
        (b"", "normal"),
        (ORDERED, "fifo"),
        (HALF, "transaction"),
        (b"DELAY\x013", "delay"),
        (b"K\x01v\x02TIMER_DELIVER_MS\x017\x02", "delay"),
        (b"MYDELAY\x013\x02", "normal"),
        (b"TRAN_MSG\x01false\x02", "normal"),
    ],
)
def test_message_type_as_apache_labels_it(properties: bytes, kind: str) -> None:
    assert message_type(properties) == kind


@pytest.mark.parametrize("is_one_topic", [True, False])
@pytest.mark.parametrize(
    "bodies",
    [
        *((1, 2, 3), (1, 5000, 3), (2000, 1, 1), (1, 1, 2000), (10,)),
        *((1,) * 20, (*(1,) * 10, 5000, 3), (2000, *(1,) * 10), (*(1,) * 10, 2000)),
    ],
)
def test_run_counted_the_same_with_and_without_the_shortcut(bodies: tuple[int, ...], is_one_topic: bool) -> None:
    metered = Metered()
    sizes = metered.note_rows([row(b"x" * size) for size in bodies], is_one_topic=is_one_topic)
    counts = metered.traffic.stored["T", "normal"]
    assert (counts.messages, counts.size_bytes, counts.sizes.total) == (len(bodies), sum(sizes), sum(sizes))
    assert counts.sizes.counts[0] == sum(size <= 1024 for size in sizes)
    assert sum(counts.sizes.counts) == len(bodies)


@pytest.mark.parametrize("properties", [ORDERED, HALF])
@pytest.mark.parametrize("plain", [1, 10])
def test_ordered_and_plain_messages_of_one_run_are_two_series(plain: int, properties: bytes) -> None:
    metered = Metered()
    metered.note_rows([*(row(b"x") for _ in range(plain)), row(b"x", properties), row(b"x")], is_one_topic=True)
    kinds = {kind: counts.messages for (_, kind), counts in metered.traffic.stored.items()}
    assert kinds == {"normal": plain + 1, message_type(properties): 1}


def test_half_message_counted_for_its_topic_until_it_ends() -> None:
    metered = Metered()
    metered.note_rows([row(b"x", HALF, names.HALF_TOPIC)], is_one_topic=False)
    assert metered.traffic.halves == {"T": 1}
    metered.traffic.note_end("T", True, 4_000)
    assert metered.traffic.halves == {"T": 0}


def test_batch_is_one_entry_of_the_sizes() -> None:
    metered = Metered()
    metered.stored.note(make_message("T", b"x"), 4, 8000)
    counts = metered.traffic.stored["T", "normal"]
    assert (counts.messages, counts.size_bytes, counts.sizes.total) == (4, 8000, 2000)
    assert counts.sizes.counts[:2] == [0, 1]
