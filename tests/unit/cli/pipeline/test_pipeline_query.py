"""`orbitlog pipeline query`: what it refuses, and how values become JSON, without starting Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli
from orbitlog.cli.pipeline.pipeline_query import _plain


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["pipeline", "query", *arguments])
    assert result.exit_code == 2
    return result.stderr


def test_times_that_are_none() -> None:
    assert "'yesterday' is neither milliseconds nor a time such as" in refused("S", "--from", "yesterday")


def test_a_directory_that_exists_is_not_written_to(tmp_path: Path) -> None:
    assert "exists; give a new directory" in refused("S", "--out", str(tmp_path))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 1, 31, tzinfo=UTC), 1_769_817_600_000),
        (b"text", "text"),
        (bytearray(b"\xff\x00"), "ff00"),
        ({"a": [b"x", None, 1.5, True]}, {"a": ["x", None, 1.5, True]}),
    ],
)
def test_values_as_json(value: object, expected: object) -> None:
    assert _plain(value) == expected
