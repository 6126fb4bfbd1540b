"""Which segments go, and why: Java's rules in a table, with the clock and the disk given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitlog.settings.retention_policy import RetentionPolicy
from orbitlog.store.retention.retention_rules import (
    Moment,
    RetentionPlan,
    Rule,
    SegmentFile,
    WatchedDisk,
    decide,
    refusal,
)
from orbitlog.storefiles.disk import DiskUsage

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 1 << 30
POLICY = RetentionPolicy()
LIMIT_MS = 72 * HOUR_MS
FREE = DiskUsage(100 << 30, 80 << 30)


def disk_at(percent: float) -> DiskUsage:
    """A disk of a hundred segments."""
    total = 100 * SEGMENT_BYTES
    return DiskUsage(total, total - round(total * percent / 100))


def files(ages_ms: list[int]) -> list[SegmentFile]:
    return [
        SegmentFile(number * SEGMENT_BYTES, SEGMENT_BYTES, NOW_MS - age_ms) for number, age_ms in enumerate(ages_ms)
    ]


def plan(
    ages_ms: list[int], percent: float = 20, hour: int = 4, policy: RetentionPolicy = POLICY, kept: int = 1
) -> RetentionPlan:
    segments = files(ages_ms)
    removable_to = (len(ages_ms) - kept) * SEGMENT_BYTES
    return decide(segments, Moment(NOW_MS, hour, disk_at(percent)), policy, removable_to=removable_to)


OLD, YOUNG = LIMIT_MS, LIMIT_MS - 1


@pytest.mark.parametrize(
    ("ages_ms", "percent", "hour", "rules"),
    [
        # At the hour: what has expired, to the millisecond.
        ([OLD, OLD, YOUNG, YOUNG], 20, 4, [Rule.EXPIRED] * 2),
        ([YOUNG, YOUNG], 20, 4, []),
        ([OLD, OLD], 20, 3, []),
        ([OLD, OLD], 20, 5, []),
        # Never the last; nothing behind the first young one.
        ([OLD], 20, 4, []),
        ([OLD, OLD], 20, 4, [Rule.EXPIRED]),
        ([YOUNG, OLD, OLD], 20, 4, []),
        ([OLD, YOUNG, OLD, OLD], 20, 4, [Rule.EXPIRED]),
        # A file from the future is young.
        ([-HOUR_MS, OLD], 20, 4, []),
        # Over 75 %: expired ones at any hour, exactly 75 % is not over.
        ([OLD, OLD, YOUNG], 75, 3, []),
        ([OLD, OLD, YOUNG], 75.1, 3, [Rule.EXPIRED_DISK_FILLING] * 2),
        ([OLD, OLD, YOUNG], 75.1, 4, [Rule.EXPIRED] * 2),
        ([YOUNG, YOUNG], 84.9, 3, []),
        # Over 85 %: the oldest even if not expired, but only until there is room again.
        ([YOUNG] * 9, 85, 3, []),
        ([YOUNG] * 9, 85.5, 3, [Rule.FORCED]),
        ([YOUNG] * 9, 87.5, 3, [Rule.FORCED] * 3),
        ([OLD, YOUNG, YOUNG, YOUNG], 86.5, 3, [Rule.EXPIRED_DISK_FILLING, Rule.FORCED]),
        ([YOUNG, YOUNG], 99, 3, [Rule.FORCED]),
        ([YOUNG], 99, 3, []),
        # Ten a step.
        ([OLD] * 30, 20, 4, [Rule.EXPIRED] * 10),
        ([YOUNG] * 30, 99, 3, [Rule.FORCED] * 10),
    ],
)
def test_what_goes(ages_ms: list[int], percent: float, hour: int, rules: list[Rule]) -> None:
    found = plan(ages_ms, percent, hour)
    assert [doomed.rule for doomed in found.doomed] == rules
    assert [doomed.base for doomed in found.doomed] == [number * SEGMENT_BYTES for number in range(len(rules))]
    assert found.end == len(rules) * SEGMENT_BYTES


def test_nothing_goes_that_is_not_safely_derived() -> None:
    assert len(plan([OLD] * 5, kept=3).doomed) == 2
    assert plan([OLD] * 5, kept=5).doomed == ()
    half = decide(files([OLD] * 3), Moment(NOW_MS, 4, FREE), POLICY, removable_to=SEGMENT_BYTES + 1)
    assert len(half.doomed) == 1


def test_several_hours_and_a_step_of_another_size() -> None:
    policy = RetentionPolicy(delete_hours=(1, 16), files_per_step=2, reserved_hours=1)
    assert [len(plan([OLD] * 5, hour=hour, policy=policy).doomed) for hour in (0, 1, 4, 16)] == [0, 2, 0, 2]


def test_without_force_a_full_disk_only_takes_what_has_expired() -> None:
    policy = RetentionPolicy(delete_by_force=False)
    assert plan([YOUNG] * 5, 95, policy=policy).doomed == ()
    found = plan([OLD, YOUNG, YOUNG], 95, hour=3, policy=policy)
    assert [doomed.rule for doomed in found.doomed] == [Rule.EXPIRED_DISK_FILLING]
    assert found.refusal


@pytest.mark.parametrize(("percent", "is_refused"), [(20, False), (90, False), (90.1, True), (100, True)])
def test_over_ninety_percent_no_message_is_taken(percent: float, is_refused: bool) -> None:
    assert bool(plan([YOUNG, YOUNG], percent).refusal) == is_refused
    assert bool(refusal([WatchedDisk("", disk_at(percent))], POLICY)) == is_refused


def test_every_reason_is_a_sentence_with_rule_age_and_ratio() -> None:
    (expired,) = plan([OLD + HOUR_MS, YOUNG]).doomed
    assert expired.reason == (
        "segment 00000000000000000000 was last written 73 h ago and messages are kept for 72 h (fileReservedTime);"
        " it is the hour to delete, 04 (deleteWhen)"
    )
    (filling,) = plan([OLD, YOUNG], 80, hour=3).doomed
    assert filling.reason.endswith("; the disk is 80.0 % full, over 75 % (diskMaxUsedSpaceRatio)")
    (forced,) = plan([2 * HOUR_MS + 60_000, YOUNG], 86, hour=3).doomed
    assert forced.reason == (
        "segment 00000000000000000000 is deleted early: it was last written 2 h 1 min ago and messages are kept"
        " for 72 h (fileReservedTime), but the disk is 86.0 % full, over 85 % (diskSpaceCleanForciblyRatio)"
    )
    low = RetentionPolicy(forced_percent=30, delete_by_force=False)
    (early,) = plan([OLD, YOUNG], 40, hour=3, policy=low).doomed
    assert early.reason.endswith("over 30 % (diskSpaceCleanForciblyRatio)")
    assert plan([YOUNG], 93.2).refusal.startswith("the disk is 93.2 % full, over 90 %")


def test_ratios_outside_are_taken_for_the_nearest_as_in_java() -> None:
    high = RetentionPolicy(expired_percent=100, forced_percent=99, full_percent=99)
    assert (high.expired_percent, high.forced_percent, high.full_percent) == (95, 85, 90)
    low = RetentionPolicy(expired_percent=1, forced_percent=1, full_percent=1)
    assert (low.expired_percent, low.forced_percent, low.full_percent) == (10, 30, 35)


@pytest.mark.parametrize(("hour", "looked_at"), [(3, 0), (4, 1)])
def test_where_nothing_is_to_do_one_file_is_looked_at_or_none(hour: int, looked_at: int) -> None:
    seen = []

    def asked() -> Iterator[SegmentFile]:
        for segment in files([YOUNG] * 50):
            seen.append(segment)
            yield segment

    decide(asked(), Moment(NOW_MS, hour, FREE), POLICY, removable_to=49 * SEGMENT_BYTES)
    assert len(seen) == looked_at


def test_a_disk_of_no_size_is_not_full() -> None:
    assert plan([YOUNG]).refusal == ""
    assert refusal([WatchedDisk("", DiskUsage(0, 0))], POLICY) == ""
