"""Output options: rows as a table, as one JSON object per line, or by a format string over the same fields."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import click

from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.row_format import RowFormat

F = TypeVar("F", bound=Callable[..., Any])


class FormattedRows(LineWriter):
    """Writes rows by a format string; accepts each row as the JSON line that --json prints."""

    def __init__(self, row_format: RowFormat) -> None:
        super().__init__()
        self._format = row_format

    def line(self, text: str) -> None:
        self.row(json.loads(text))

    def row(self, row: dict[str, Any]) -> None:
        """Write one row; its line end is part of the format."""
        super().line(self._format.text(row))

    def flush(self) -> None:
        sys.stdout.write("".join(self._lines))
        sys.stdout.flush()
        self._lines.clear()
        self._characters = 0


class Output(NamedTuple):
    """The form of the output: a table unless JSON or a format string is chosen."""

    as_json: bool = False
    template: str | None = None

    @property
    def is_table(self) -> bool:
        return not self.as_json and self.template is None

    def check(self, fields: Sequence[str]) -> None:
        """Raise `WrongUse` if the format string has unknown fields; call before doing the work."""
        if self.template is not None:
            RowFormat(self.template, fields)

    def writer(self, fields: Sequence[str]) -> LineWriter:
        """Return a writer of JSON lines or of table lines."""
        return LineWriter() if self.template is None else FormattedRows(RowFormat(self.template, fields))

    def write(self, fields: Sequence[str], *rows: Mapping[str, Any]) -> None:
        """Write rows and flush, as JSON or by the format string."""
        with self.writer(fields) as writer:
            for row in rows:
                writer.line(json.dumps(row, separators=(",", ":")))
        sys.stdout.flush()


def output_options(function: F, *, format_names: Sequence[str] = ("-f", "--format")) -> F:
    """Add --json and -f; the command receives them as `output`."""

    @functools.wraps(function)
    def run(*arguments: Any, as_json: bool, template: str | None, **words: Any) -> Any:
        return function(*arguments, output=Output(as_json, template), **words)

    decorated = click.option(
        *format_names,
        "template",
        help=r"Print rows by a format string such as '{name}\t{other}', with the names of --json.",
    )(run)
    return cast("F", click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")(decorated))
