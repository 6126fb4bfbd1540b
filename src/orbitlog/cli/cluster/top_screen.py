"""Screen of `orbitlog top`: draws tables over the last view on a terminal, or once after the other without one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from orbitlog.cli.output.display_text import local_time, printable
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.row_format import cell
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.output.terminal import escaped

# Written to the terminal below the stream that escapes control characters: they are this module's own.
_ENTER, _LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_REST = b"\x1b[H", b"\x1b[J"
_CLEAR_LINE = b"\x1b[K\n"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "brokers": (
        Column("broker", width_max=24),
        Column("role"),
        Column("version", dispensable=4),
        Column("inPerSecond", right=True),
        Column("outPerSecond", right=True),
        Column("diskPercent", right=True, dispensable=1),
        Column("unflushedBytes", right=True, dispensable=2),
        Column("undispatchedBytes", right=True, dispensable=3),
        Column("memoryBytes", right=True),
        Column("address", dispensable=5),
        Column("problem", width_max=40, dispensable=1),
    ),
    "groups": (
        Column("group", width_max=40, width_min=12),
        Column("topic", width_max=40, width_min=12),
        Column("lag", right=True),
        Column("lagPerSecond", right=True),
        Column("waitingSeconds", right=True),
        Column("consumedPerSecond", right=True, dispensable=1),
    ),
    "slowRequests": (
        Column("broker", width_max=24),
        Column("request", width_max=32),
        Column("ms", right=True),
        Column("secondsAgo", right=True),
        Column("client", dispensable=1),
        Column("phases", width_max=60, dispensable=2),
    ),
}


class _Lines(LineWriter):
    """Collects lines instead of printing them."""

    def __init__(self) -> None:
        super().__init__()
        self.collected: list[str] = []

    def line(self, text: str) -> None:
        self.collected.append(text)


class TopScreen:
    """Shows one view after the other; as a context it restores the terminal."""

    def __init__(self, *, is_live: bool) -> None:
        self._is_live = is_live

    def __enter__(self) -> TopScreen:
        if self._is_live:
            self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._write(_LEAVE)

    def show(self, view: Mapping[str, Any], tables: Sequence[tuple[str, str]]) -> None:
        """Show a view; `tables` are its tables with their headings."""
        lines = screen_lines(view, tables)
        if not self._is_live:
            click.echo("\n".join(lines))
            return
        import shutil

        height = shutil.get_terminal_size().lines
        text = [
            escaped(line).encode(sys.stdout.encoding or "utf-8", "backslashreplace") for line in lines[: height - 1]
        ]
        self._write(_HOME + b"".join(line + _CLEAR_LINE for line in text) + _CLEAR_REST)

    def _write(self, data: bytes) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def screen_lines(view: Mapping[str, Any], tables: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines of a view; values from outside are escaped."""
    writer = _Lines()
    writer.line(f"orbitlog top  {local_time(view['timestampMs'])}")
    for name, heading in tables:
        rows = view[name]
        if not rows:
            continue
        writer.line(f"{heading}:" if heading else "")
        table = StreamTable(writer, COLUMNS[name])
        for row in rows:
            table.row([printable(_cell(column.title, row[column.title])) for column in COLUMNS[name]])
        table.finish()
        writer.line("")
    return writer.collected


def _cell(title: str, value: object) -> str:
    if title.endswith("Bytes") and isinstance(value, int):
        return _size(value)
    return "-" if value is None else cell(value)


def _size(count: int) -> str:
    size = float(count)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
