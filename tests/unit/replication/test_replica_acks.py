"""Replica acknowledgements: which reports count, how many copies are needed, and when a send may wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.errors import WireError
from orbitlog.replication.replica_acks import ReplicaAcks, ReplicaProgress

LAG_MAX = 1000


def joined(acks: ReplicaAcks, start: int = 0) -> ReplicaProgress:
    replica = ReplicaProgress(start, start)
    acks.join(replica)
    return replica


def acknowledge(acks: ReplicaAcks, replica: ReplicaProgress, end: int) -> None:
    replica.sent_to = max(replica.sent_to, end)
    replica.acknowledge(end)
    acks.update()


def test_one_slave_is_enough_for_two_copies() -> None:
    acks = ReplicaAcks(2, LAG_MAX)
    acknowledge(acks, joined(acks), 100)
    assert acks.replicated_to == 100


def test_three_copies_need_the_slower_of_two_slaves() -> None:
    acks = ReplicaAcks(3, LAG_MAX)
    first, second = joined(acks), joined(acks)
    acknowledge(acks, first, 100)
    assert acks.replicated_to == 0
    acknowledge(acks, second, 70)
    assert acks.replicated_to == 70


def test_offset_that_a_slave_asked_for_does_not_count() -> None:
    acks = ReplicaAcks(2, LAG_MAX)
    replica = joined(acks, start=500)
    replica.acknowledge(500)
    assert not acks.update()
    assert acks.replicated_to == 0


def test_report_past_the_sent_bytes_raises_and_does_not_count() -> None:
    acks = ReplicaAcks(2, LAG_MAX)
    replica = joined(acks)
    replica.sent_to = 100
    with pytest.raises(WireError, match="past 100"):
        replica.acknowledge(101)
    acks.update()
    assert acks.replicated_to == 0


def test_report_that_goes_back_raises() -> None:
    replica = ReplicaProgress(0, 100)
    replica.acknowledge(80)
    with pytest.raises(WireError, match="before 80"):
        replica.acknowledge(79)


def test_slave_that_left_does_not_count_for_later_bytes() -> None:
    acks = ReplicaAcks(2, LAG_MAX)
    replica = joined(acks)
    acknowledge(acks, replica, 100)
    acks.leave(replica)
    assert acks.replicated_to == 100, "its disk still has them"
    assert acks.has_enough_slaves(100)
    assert not acks.has_enough_slaves(101)


def test_send_does_not_wait_for_a_slave_too_far_behind() -> None:
    acks = ReplicaAcks(2, LAG_MAX)
    replica = joined(acks, start=0)
    assert acks.has_enough_slaves(LAG_MAX - 1)
    assert not acks.has_enough_slaves(LAG_MAX)
    acknowledge(acks, replica, 10)
    assert acks.has_enough_slaves(LAG_MAX)


def test_observer_that_reports_less_than_it_asked_for_is_not_waited_for() -> None:
    acks = ReplicaAcks(2, LAG_MAX)
    observer = joined(acks, start=50)
    assert acks.has_enough_slaves(60), "it may be a slave until its next report"
    acknowledge(acks, observer, 0)
    assert observer.is_observer
    assert not acks.has_enough_slaves(60)
    assert acks.replicated_to == 0


@given(st.integers(2, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), max_size=40))
def test_replicated_offset_is_on_enough_slaves_and_never_decreases(copies: int, steps: list[tuple[int, int]]) -> None:
    acks = ReplicaAcks(copies, LAG_MAX)
    replicas = [joined(acks) for _ in range(4)]
    ends, before = [0] * 4, 0
    for index, grow in steps:
        ends[index] += grow
        acknowledge(acks, replicas[index], ends[index])
        assert acks.replicated_to >= before
        assert sum(end >= acks.replicated_to for end in ends) >= copies - 1
        before = acks.replicated_to
