"""Running the command line inside the test process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orbitlog.cli.main import cli


@dataclass(frozen=True)
class Ran:
    """Exit code and output of a command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def sentences(self) -> list[str]:
        return self.stderr.splitlines()


Run = Callable[..., Ran]


@pytest.fixture
def run() -> Run:
    """Run `orbitlog` with the arguments; any other than a clean exit fails the test."""

    def invoke(*arguments: str | Path, input: str | None = None) -> Ran:
        words = list(map(str, arguments))
        result = CliRunner(env={"COLUMNS": "160"}).invoke(cli, words, input=input, prog_name="orbitlog")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "Traceback" not in result.stderr
        assert all(line.startswith("orbitlog: ") for line in result.stderr.splitlines())
        return Ran(result.exit_code, result.stdout, result.stderr)

    return invoke
