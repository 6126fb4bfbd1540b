"""`make compare` warms up every client before its first row, and each row can run alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import compare
from benchmarks.compare_record import Record
from benchmarks.compare_rows import APART, WARM_UP_TOPIC, Job, Row, jobs, warm_up


class FakeLoad:
    """A client that records the jobs that it is given."""

    process = SimpleNamespace(send_signal=lambda signal_number: None)

    def __init__(self) -> None:
        self.lines: list[str] = []

    def cpu_seconds(self) -> float:
        return 0.0

    def run(self, line: str) -> dict[str, float]:
        self.lines.append(line)
        if line.startswith("broken"):
            raise compare.JobFailed(line)
        is_first = self.lines.count(line) == 1
        failed = 1.0 if (line.startswith("reconnecting") and is_first) or line.startswith("failing") else 0.0
        return {"failed": failed, "messages": 10.0, "seconds": 1.0}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[FakeLoad]:
    started: list[FakeLoad] = []

    def start(directory: Path, settings: object) -> Any:
        return SimpleNamespace(
            name="apache",
            start_seconds=1.0,
            processes=(),
            resident_mb=lambda: 1.0,
            cpu_seconds=lambda: 0.0,
            stop=lambda: None,
        )

    @contextmanager
    def client_of(broker: object, directory: Path) -> Iterator[FakeLoad]:
        started.append(FakeLoad())
        yield started[-1]

    monkeypatch.setattr(compare, "STARTERS", {"apache": start})
    monkeypatch.setattr(compare, "client_of", client_of)
    return started


def test_new_client_runs_the_warm_up_before_the_first_row(loads: list[FakeLoad], tmp_path: Path) -> None:
    wanted = [Job("broken row", (Row("one"),)), Job("consume Compare 10", (Row("two"),))]
    record = Record(1, warm_up(is_quick=True))
    compare.compare(wanted, ["apache"], 1, tmp_path, record)
    first, second = (load.lines for load in loads)
    warm = list(record.warm_up)
    assert first[4:] == [*warm, "broken row"]  # after the topics of the rows
    assert second == [*warm, "consume Compare 10", "consume Compare 10"]  # one round does not count
    assert record.values["two", "apache"] == [10.0] and set(record.left_out) == {"one"}
    assert record.values[APART[0].name, "apache"] == [1.0]


def test_warm_up_uses_a_topic_of_its_own_and_consumes_more_than_once() -> None:
    lines = warm_up(is_quick=False)
    assert all(line.split()[1] == WARM_UP_TOPIC for line in lines)
    assert sum(line.startswith("consume") for line in lines) > 1


@pytest.mark.parametrize("word", ["consume", "query"])
def test_row_that_reads_messages_sends_them_first(word: str) -> None:
    """Chosen with `--row` alone, it finds none of earlier rows."""
    reading = [job for job in jobs(1.0) if job.words.startswith(word)]
    assert reading
    for job in reading:
        assert any(line.split()[1] == job.words.split()[1] for line in job.before)


def test_failures_of_the_uncounted_round_are_ignored(loads: list[FakeLoad], tmp_path: Path) -> None:
    record = Record(1, ())
    wanted = [Job("reconnecting", (Row("one"),)), Job("failing", (Row("two"),))]
    compare.compare(wanted, ["apache"], 1, tmp_path, record)
    assert record.values["one", "apache"] == [10.0]
    assert list(record.left_out) == ["two"]


def test_record_of_some_rows_keeps_the_others_with_their_origin(tmp_path: Path) -> None:
    earlier = {
        "when": "2026-01-01",
        "commit": "abc",
        "rows": [{"name": "a", "ratio": 1.0}, {"name": "b", "ratio": 2.0}],
    }
    record = Record(1, ())
    for broker in ("apache", "orbitlog"):
        record.add(compare.Row("b"), broker, 3.0)
    record.save(tmp_path / "compare.json", earlier=earlier)
    rows = json.loads((tmp_path / "compare.json").read_text())["rows"]
    assert [(row["name"], row["ratio"], row.get("commit")) for row in rows] == [("b", 1.0, None), ("a", 1.0, "abc")]
