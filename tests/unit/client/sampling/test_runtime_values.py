"""Texts of GET_BROKER_RUNTIME_INFO, as brokers of 4.9 and 5.5 write them."""

from __future__ import annotations

import pytest

from orbitlog.client.sampling import runtime_values as values


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12.0),
        ("0.25", 0.25),
        ("", None),
        (None, None),
        ("x", None),
        ("NaN", None),
        ("Infinity", None),
        ("9" * 41, None),
    ],
)
def test_number_of_text(text: str | None, number: float | None) -> None:
    assert values.number(text) == number


def test_capacity_in_bytes() -> None:
    runtime = {"commitLogDirCapacity": "Total : 97.9 GiB, Free : 512.0 MiB."}
    assert values.capacity(runtime) == (97.9 * 2**30, 512.0 * 2**20)
    assert values.capacity({"commitLogDirCapacity": "unknown"}) is None


@pytest.mark.parametrize(("text", "count"), [("0 B", 0.0), ("1.5 KiB", 1536.0), ("12", 12.0), ("", None)])
def test_unflushed_bytes(text: str, count: float | None) -> None:
    assert values.unflushed_bytes({"remainHowManyDataToFlush": text}) == count


def test_rates_of_three_windows() -> None:
    assert values.rates({"putTps": "3.5 2.0 1.0"}, "put") == [3.5, 2.0, 1.0]
    assert values.rates({"getTransferedTps": "1.0"}, "gettransfered") == [1.0]  # the spelling of 4.9
    assert values.rates({}, "put") == []


def test_put_times() -> None:
    text = "[<=0ms]:7 [0~10ms]:3 [10s~]:0 "
    assert values.put_times({"putMessageDistributeTime": text}) == {"<=0ms": 7, "0~10ms": 3, "10s~": 0}
    assert values.put_times({"putMessageDistributeTime": "null"}) == {}
