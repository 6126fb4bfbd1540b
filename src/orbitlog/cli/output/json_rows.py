"""Rows of commands: a table, one JSON object a line, or by a format string over the same fields."""

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
    """Takes each row as the JSON object that --json prints, and writes it by a format string."""

    def __init__(self, row_format: RowFormat) -> None:
        super().__init__()
        self._format = row_format

    def line(self, text: str) -> None:
        self.row(json.loads(text))

    def row(self, row: dict[str, Any]) -> None:
        """Write one row; its own end is part of the format."""
        text = self._format.text(row)
        self._lines.append(text)
        self._characters += len(text)
        if self._characters >= self._limit:
            self.flush()

    def flush(self) -> None:
        sys.stdout.write("".join(self._lines))
        sys.stdout.flush()
        self._lines.clear()
        self._characters = 0


class Output(NamedTuple):
    """How rows are to be written; `is_table` unless they are wanted as JSON or by a format string."""

    as_json: bool = False
    template: str | None = None

    @property
    def is_table(self) -> bool:
        return not self.as_json and self.template is None

    def check(self, fields: Sequence[str]) -> None:
        """Refuse a format string with other fields, before any work is done for it."""
        if self.template is not None:
            RowFormat(self.template, fields)

    def writer(self, fields: Sequence[str]) -> LineWriter:
        """Return what takes rows as lines of JSON, or the lines of a table."""
        return LineWriter() if self.template is None else FormattedRows(RowFormat(self.template, fields))

    def write(self, fields: Sequence[str], *rows: Mapping[str, Any]) -> None:
        """Write rows at once, as JSON or by the format string."""
        with self.writer(fields) as writer:
            for row in rows:
                writer.line(json.dumps(row, separators=(",", ":")))
        sys.stdout.flush()


def output_options(function: F, *, format_names: Sequence[str] = ("-f", "--format")) -> F:
    """Give a command --json and -f; it is called with `output`."""

    @functools.wraps(function)
    def run(*arguments: Any, as_json: bool, template: str | None, **words: Any) -> Any:
        return function(*arguments, output=Output(as_json, template), **words)

    decorated = click.option(
        *format_names, "template", help=r"Print rows by a format string: '{name}\t{other}'; names as in --json."
    )(run)
    return cast("F", click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")(decorated))
