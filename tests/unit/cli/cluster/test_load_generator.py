"""The load generator's arithmetic."""

from __future__ import annotations

import pytest

from orbitlog.cli.cluster.load_generator import Measured, percentile_ms, shares


@pytest.mark.parametrize(
    ("share", "ms"), [(0.5, 50_000.0), (0.99, 99_000.0), (0.995, 100_000.0), (1.0, 100_000.0), (0.001, 1_000.0)]
)
def test_percentiles_by_nearest_rank(share: float, ms: float) -> None:
    assert percentile_ms([float(number) for number in range(1, 101)], share) == ms


def test_a_percentile_of_little() -> None:
    assert percentile_ms([], 0.5) is None
    assert percentile_ms([0.25], 0.01) == percentile_ms([0.25], 1.0) == 250.0


@pytest.mark.parametrize(("count", "parts", "dealt"), [(10, 3, [4, 3, 3]), (2, 4, [1, 1, 0, 0]), (8, 1, [8])])
def test_shares_make_the_whole(count: int, parts: int, dealt: list[int]) -> None:
    assert shares(count, parts) == dealt


def test_what_clients_did_is_added_up() -> None:
    total = Measured(seconds=2.0, cpu_s=0.001)
    total.add(Measured(messages=3, size_bytes=3 << 20, waits_s=[0.001, 0.002]))
    total.add(Measured(messages=1, size_bytes=1 << 20, failures=2, waits_s=[0.004]))
    row = total.row()
    assert (row["messages"], row["messagesPerSecond"], row["mebibytesPerSecond"], row["failures"]) == (4, 2, 2.0, 2)
    assert (row["p50Ms"], row["maxMs"], row["cpuMicrosecondsPerMessage"]) == (2.0, 4.0, 250.0)


def test_nothing_done_is_a_row_too() -> None:
    assert Measured().row()["cpuMicrosecondsPerMessage"] is None
