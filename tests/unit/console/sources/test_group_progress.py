"""Progress of groups between samples."""

from __future__ import annotations

from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample, Part
from orbitlog.console.sources.group_progress import GroupProgress
from orbitlog.formats.tables.offset_tables import TopicGroup


def sample(at_ms: int, committed: int | None, problem: str | None = None) -> ClusterSample:
    offsets = {} if committed is None else {TopicGroup("T", "g"): {0: committed}}
    part = Part({}, at_ms)
    return ClusterSample(
        at_ms, (), (BrokerSample("b", "c", 0, "1.2.3.4:5", part, part, part, Part(offsets, at_ms, problem)),), {}
    )


def progress(*samples: ClusterSample) -> GroupProgress:
    found = GroupProgress()
    for entry in samples:
        found.add(entry)
    return found


def test_rate_is_unknown_before_the_second_sample_and_never_negative() -> None:
    assert progress(sample(0, 10)).rate("g") is None
    assert progress(sample(0, 10), sample(5000, 60)).rate("g") == 10
    assert progress(sample(0, 10), sample(5000, 0)).rate("g") == 0
    assert progress(sample(0, 10), sample(5000, 60)).rate("other") is None


def test_samples_that_follow_at_once_or_miss_a_broker_are_left_out() -> None:
    assert progress(sample(0, 10), sample(1000, 60)).rate("g") is None
    assert progress(sample(0, 10), sample(5000, None, "does not answer")).rate("g") is None


def test_rate_over_a_time_in_which_nobody_looked_is_unknown() -> None:
    assert progress(sample(0, 10), sample(600_000, 60)).rate("g") is None


def test_group_is_quiet_since_its_offsets_last_changed() -> None:
    assert progress(sample(0, 10)).quiet_ms("g") == 0
    assert progress(sample(0, 10), sample(5000, 10), sample(40_000, 10)).quiet_ms("g") == 40_000
    assert progress(sample(0, 10), sample(5000, 11), sample(40_000, 11)).quiet_ms("g") == 35_000
    assert progress(sample(0, 10), sample(5000, None), sample(40_000, 10)).quiet_ms("g") == 0
