"""`orbitlog pipeline export`: what it refuses before Spark is started."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (
            ["S", "--topic", "T", "--to", "d", "--trigger", "soon"],
            2,
            "'soon' is neither available-now nor a time such as 500ms, 10s or 1m",
        ),
        (["S", "--to", "d"], 2, "Missing option '--topic'"),
        (["S", "--topic", "T", "--to", "d", "--json-schema", "id decimal"], 1, "'id decimal' is not a valid column"),
        (["a/store", "b/../a/store", "--topic", "T", "--to", "d"], 1, "two stores have the name 'a'"),
    ],
)
def test_what_cannot_work_is_reported_at_once(arguments: list[str], code: int, sentence: str) -> None:
    result = CliRunner().invoke(cli, ["pipeline", "export", *arguments])
    assert (result.exit_code, sentence in result.stderr) == (code, True), result.stderr
    assert result.stderr.count("\n") == 1
