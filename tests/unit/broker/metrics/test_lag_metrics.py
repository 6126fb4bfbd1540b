"""Lag of very many groups and topics: collected in bounded steps, capped families state it."""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace
from typing import cast

from orbitlog.broker.metrics.lag_metrics import LagMetrics
from orbitlog.broker.pop.popped_queues import PoppedQueues
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.tables.clients import Clients
from orbitlog.broker.tables.committed_offsets import CommittedOffsets
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.observe.exposition import PROMETHEUS, STEP_ROWS, Exposition
from orbitlog.observe.metric import Family
from orbitlog.observe.metrics_settings import QUEUE_LAG
from orbitlog.settings.store_settings import RESERVED_HOURS
from tests.support.exposition_parser import parse_exposition

TOPICS, GROUPS, END = 200, 100, 10
LIMIT = 2_000


def broker_with_many_groups(*, queue_lag: bool = False) -> LagMetrics:
    offsets = CommittedOffsets(lambda: 0)
    for topic in range(TOPICS):
        for group in range(GROUPS):
            offsets.commit(f"T{topic}", f"g{group}", 0, 3)
    state = SimpleNamespace(
        settings={QUEUE_LAG: queue_lag, RESERVED_HOURS: 2},
        offsets=offsets,
        clients=Clients(),
        topics=SimpleNamespace(find=lambda topic: TopicConfig(topic, 1, 1)),
        max_offset=lambda topic, queue_id: END,
        min_offset=lambda topic, queue_id: 0,
        store_time_ms=lambda topic, queue_id, queue_offset: 1_000,
        now_ms=lambda: 61_000,
    )
    return LagMetrics(cast(BrokerState, state), PoppedQueues(offsets))


def test_capped_families_state_it_and_steps_are_bounded() -> None:
    exposition = Exposition((broker_with_many_groups().read,), "", LIMIT)
    pieces = list(exposition.steps(PROMETHEUS))
    families = parse_exposition("".join(pieces))
    assert len(families["orbitlog_group_lag_messages"].samples) == LIMIT
    dropped = families["orbitlog_series_dropped_total"]
    assert dropped.value(metric="orbitlog_group_lag_messages") == TOPICS * GROUPS - LIMIT
    assert max(piece.count("\n") for piece in pieces) <= STEP_ROWS
    assert len(pieces) > LIMIT / 250  # it paused after each step of queues


def test_lag_in_messages_and_seconds() -> None:
    found = {family.metric.name: family for family in broker_with_many_groups().read(10) if isinstance(family, Family)}
    assert {row.value for row in found["orbitlog_group_lag_messages"].rows} == {7}
    assert {row.value for row in found["orbitlog_group_lag_seconds"].rows} == {60.0}
    assert not found["rocketmq_consumer_lag_messages"].rows


def test_unread_messages_have_the_time_until_retention_takes_them() -> None:
    found = {family.metric.name: family for family in broker_with_many_groups().read(10) if isinstance(family, Family)}
    assert {row.value for row in found["orbitlog_retention_seconds_left"].rows} == {2 * 3600 - 60.0}
    assert "orbitlog_queue_lag_messages" not in found


def test_lag_of_queues_if_it_is_switched_on() -> None:
    exposition = Exposition((broker_with_many_groups(queue_lag=True).read,), "", LIMIT)
    families = parse_exposition("".join(exposition.steps(PROMETHEUS)))
    family = families["orbitlog_queue_lag_messages"]
    assert set(family.label_names) == {"consumer_group", "topic", "queue_id"}
    assert len(family.samples) == LIMIT and family.value(consumer_group="g0", topic="T0", queue_id="0") == 7


def longest_step(limit: int) -> int:
    """Return the most calls that a step of the page makes: the event loop serves nothing else meanwhile."""
    steps = Exposition((broker_with_many_groups().read,), "", limit).steps(PROMETHEUS)
    counted: list[int] = []

    def profile(_: FrameType, event: str, __: object) -> None:
        if event in ("call", "c_call"):
            counted[-1] += 1

    before = sys.getprofile()
    is_left = True
    while is_left:
        counted.append(0)
        sys.setprofile(profile)
        try:
            is_left = next(steps, None) is not None
        finally:
            sys.setprofile(before)
    return max(counted)


def test_longest_step_does_not_grow_with_the_number_of_series() -> None:
    few, many = longest_step(1_000), longest_step(TOPICS * GROUPS)
    assert many <= few * 1.1 and many <= 12_000, f"{few} calls with 1,000 pairs, {many} with {TOPICS * GROUPS:,}"
