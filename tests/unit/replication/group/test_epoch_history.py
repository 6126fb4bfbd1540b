"""Epoch histories: which bytes two logs share."""

from __future__ import annotations

from orbitlog.formats.derived.epoch_file import EpochEntry
from orbitlog.replication.group.epoch_history import EpochHistory, adopted


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(EpochEntry(*entry) for entry in entries)


def test_common_point_of_a_returning_master_is_the_start_of_the_new_epoch() -> None:
    # As seen between Apache brokers: master 1-0, 5-930 with end 1314, slave 1-0 with end 1302.
    assert history((1, 0)).common_point(1302, history((1, 0), (5, 930)), 1314) == 930


def test_common_point_is_the_shorter_end_of_a_shared_epoch() -> None:
    assert history((1, 0)).common_point(500, history((1, 0)), 900) == 500
    assert history((1, 0), (3, 200)).common_point(700, history((1, 0), (3, 200)), 600) == 600


def test_epoch_with_another_start_is_not_shared() -> None:
    assert history((1, 0), (3, 200)).common_point(700, history((1, 0), (3, 100)), 600) == 100


def test_logs_without_a_shared_epoch_have_no_common_point() -> None:
    assert history((1, 0)).common_point(500, history((2, 0)), 900) is None


def test_new_epoch_replaces_one_without_bytes() -> None:
    # Otherwise its bytes would pass for the older epoch's, and two different logs for equal ones.
    assert history((19, 3618), (20, 4386)).begin(21, 4386).entries == history((19, 3618), (21, 4386)).entries
    first, second = history((19, 3618), (20, 4386)), history((19, 3618)).begin(21, 4386)
    assert first.common_point(4770, second, 4770) == 4386


def test_entries_past_the_end_are_dropped_and_one_at_the_end_is_kept() -> None:
    entries = history((1, 0), (3, 200), (4, 300))
    assert entries.up_to(299).entries == history((1, 0), (3, 200)).entries
    assert entries.up_to(300) is entries
    assert adopted(entries.entries, 100).entries == history((1, 0)).entries


def test_entries_that_end_before_the_first_kept_byte_are_dropped() -> None:
    assert history((1, 0), (3, 200), (4, 300)).from_start(250).entries == history((3, 200), (4, 300)).entries
    assert history((1, 0), (3, 200)).from_start(0).entries == history((1, 0), (3, 200)).entries


def test_epoch_of_a_byte_ends_at_the_next_start() -> None:
    entries = history((1, 100), (3, 200))
    assert entries.at(150, 500) == (EpochEntry(1, 100), 200)
    assert entries.at(200, 500) == (EpochEntry(3, 200), 500)
    assert entries.at(99, 500) is None
