"""What numbers of a broker mean for its health."""

from __future__ import annotations

import pytest

from orbitlog.cli.cluster.health_checks import Limits, _broker, _disk, _lags, parse_size

LIMITS = Limits(disk_ratio=0.75, lag_bytes=1 << 20, stuck_seconds=60)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("12 B", 12), ("1.5 KiB", 1536), ("2 MB", 2 << 20), ("1.0 GiB", 1 << 30), ("", None), ("much", None)],
)
def test_sizes_as_brokers_write_them(text: str, size: int | None) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("ratio", "state"), [("0.1", "ok"), ("0.75", "warning"), ("0.89", "warning"), ("0.9", "problem"), ("?", "warning")]
)
def test_a_disk(ratio: str, state: str) -> None:
    finding = _disk("broker-a", "a:1", {"commitLogDiskRatio": ratio}, LIMITS)
    assert finding.state == state
    assert (finding.problem is None) is (state == "ok")


def test_smaller_limit_of_the_broker_is_not_reported_if_the_user_allows_more() -> None:
    limits = Limits(disk_ratio=0.97, lag_bytes=0, stuck_seconds=60)
    assert _disk("broker-a", "a:1", {"commitLogDiskRatio": "0.96"}, limits).state == "ok"
    assert _disk("broker-a", "a:1", {"commitLogDiskRatio": "0.97"}, limits).state == "problem"


def test_lags() -> None:
    numbers = {"dispatchBehindBytes": str((1 << 20) + 1), "remainHowManyDataToFlush": "1.0 MiB"}
    dispatch, flush = _lags("broker-a", "a:1", numbers, LIMITS)
    assert (dispatch.state, flush.state) == ("problem", "ok")
    assert {each.state for each in _lags("broker-a", "a:1", {}, LIMITS)} == {"warning"}


def test_a_broker_that_is_not_active() -> None:
    assert _broker("broker-a", "a:1", {"brokerActive": "false"}, 1.0).state == "problem"
    assert _broker("broker-a", "a:1", {}, 1.0).state == "ok"
