"""Rows of `orbitlog top` from two samples."""

from __future__ import annotations

from orbitlog.client.sampling.cluster_rates import broker_rows, group_rows, slow_rows
from orbitlog.client.sampling.sampled_numbers import BrokerSample, ClusterSample, GroupKey, Progress

SECOND_MS = 1000


def sample(at_ms: int, put: int, lag: int, **runtime: str) -> ClusterSample:
    numbers = {"msgPutTotalTodayNow": str(put), "msgGetTotalTodayNow": "0", **runtime}
    broker = BrokerSample("c", "broker-a", 0, "127.0.0.1:1", numbers, put_tps=9.0, get_tps=None)
    progress = {
        GroupKey("c", "broker-a", "T", "g"): Progress(100, 100 - lag, 2.5, at_ms - 5 * SECOND_MS),
        GroupKey("c", "broker-b", "T", "g"): Progress(10, 10),
        GroupKey("c", "broker-a", "T", "other"): Progress(100, 99),
    }
    return ClusterSample(at_ms, [broker], progress)


def test_rates_are_differences_of_totals() -> None:
    [row] = broker_rows(sample(3 * SECOND_MS, 70, 0), sample(SECOND_MS, 50, 0))
    assert (row["inPerSecond"], row["outPerSecond"]) == (10.0, 0.0)


def test_rates_without_an_earlier_sample_or_after_a_restart_are_those_of_the_broker() -> None:
    [first] = broker_rows(sample(SECOND_MS, 50, 0), None)
    [restarted] = broker_rows(sample(3 * SECOND_MS, 5, 0), sample(SECOND_MS, 50, 0))
    assert first["inPerSecond"] == restarted["inPerSecond"] == 9.0
    assert first["outPerSecond"] is None


def test_memory_and_disk_are_shown_if_the_broker_reports_them() -> None:
    [row] = broker_rows(sample(1, 0, 0, processResidentBytes="1048576", commitLogDiskRatio="0.5"), None)
    assert (row["memoryBytes"], row["diskPercent"]) == (1048576, 50.0)
    [row] = broker_rows(sample(1, 0, 0), None)
    assert row["memoryBytes"] is None


def test_unreachable_broker_is_a_row_with_its_problem() -> None:
    taken = ClusterSample(1, unreachable={"127.0.0.1:1": "no answer"})
    [row] = broker_rows(taken, None)
    assert (row["address"], row["problem"]) == ("127.0.0.1:1", "no answer")


def test_groups_with_most_lag_first() -> None:
    rows = group_rows(sample(3 * SECOND_MS, 0, 40), sample(SECOND_MS, 0, 20), 10)
    assert [(row["group"], row["lag"], row["lagPerSecond"]) for row in rows] == [("g", 40, 10.0), ("other", 1, 0.0)]
    assert rows[0]["waitingSeconds"] == 5
    assert len(group_rows(sample(1, 0, 40), None, 1)) == 1


def test_slow_requests_of_both_kinds_of_brokers() -> None:
    taken = sample(
        10_000, 0, 0, slowRequest_1="send_message_v2 812 127.0.0.1:5 4000 flush 800 ms", putMessageEntireTimeMax="900"
    )
    rows = slow_rows(taken, 5)
    assert [(row["request"], row["ms"], row["secondsAgo"], row["phases"]) for row in rows] == [
        ("store a message", 900, None, ""),
        ("send_message_v2", 812, 6, "flush 800 ms"),
    ]
