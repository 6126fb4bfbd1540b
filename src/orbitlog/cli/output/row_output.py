"""Row output: prints rows as a table, as JSON lines or by a format string."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from orbitlog.cli.output.display_text import printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.row_format import RowFormat, cell
from orbitlog.cli.output.stream_table import Column, StreamTable


def show_rows(columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print rows; column titles are also the JSON names and the fields of format strings."""
    if output.template is not None:
        template = RowFormat(output.template, [column.title for column in columns])
        for row in rows:
            # As bytes: a body that is not UTF-8 is written unchanged.
            click.echo(template.text(row).encode("utf-8", "surrogateescape"), nl=False)
        return
    with LineWriter() as writer:
        if output.as_json:
            for row in rows:
                writer.line(json.dumps(row, ensure_ascii=False))
            return
        table = StreamTable(writer, columns)
        for row in rows:
            table.row([printable(cell(row[column.title])) for column in columns])
        table.finish()


def check_template(output: Output, fields: Sequence[str]) -> RowFormat | None:
    """Parse the format string, if any; call before the request, so that an invalid one fails at once."""
    return None if output.template is None else RowFormat(output.template, fields)
