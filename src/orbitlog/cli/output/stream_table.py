"""Streaming table: prints rows while later ones are still being read.

The first rows determine the column widths; later cells are truncated to fit. If the terminal is too narrow, wide
columns shrink, then dispensable ones are omitted, the least important first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from orbitlog.cli.output.display_text import display_width, fit
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.terminal import styled

_ROWS_MEASURED = 200
_GAP = "  "
_WIDTH_WITHOUT_TERMINAL = 160


class Column(NamedTuple):
    """One column; it may shrink to `width_min`. The higher `dispensable`, the earlier it is omitted (0: never)."""

    title: str
    right: bool = False
    width_max: int = 60
    width_min: int | None = None
    dispensable: int = 0
    style: str | None = None


def shows_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def line_width() -> int:
    """Return the maximum width of a line: that of the terminal, or a default without one."""
    import shutil

    return shutil.get_terminal_size((_WIDTH_WITHOUT_TERMINAL, 24)).columns


class StreamTable:
    """Writes rows below a heading; call `finish` after the last row."""

    def __init__(self, writer: LineWriter, columns: Sequence[Column]) -> None:
        self._writer = writer
        self._columns = columns
        self._pending: list[Sequence[str]] = []
        self._shown: list[tuple[int, int]] | None = None
        self._colour = shows_colour()

    def row(self, cells: Sequence[str]) -> None:
        if self._shown is not None:
            self._write(cells)
            return
        self._pending.append(cells)
        if len(self._pending) >= _ROWS_MEASURED:
            self._start()

    def finish(self) -> None:
        """Write the pending rows."""
        if self._shown is None and self._pending:
            self._start()

    def _start(self) -> None:
        self._shown = _chosen_widths(self._columns, self._pending, line_width())
        heading = _GAP.join(
            fit(self._columns[number].title, width, right=self._columns[number].right) for number, width in self._shown
        )
        self._writer.line(styled(heading.rstrip(), bold=True) if self._colour else heading.rstrip())
        for cells in self._pending:
            self._write(cells)
        self._pending.clear()

    def _write(self, cells: Sequence[str]) -> None:
        assert self._shown is not None
        parts = []
        for number, width in self._shown:
            column = self._columns[number]
            text = fit(cells[number], width, right=column.right)
            parts.append(styled(text, fg=column.style) if self._colour and column.style else text)
        self._writer.line(_GAP.join(parts).rstrip())


def _chosen_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[tuple[int, int]]:
    """Return index and width of each column that is shown."""
    natural = {
        number: max(display_width(column.title), *(display_width(cells[number]) for cells in rows))
        for number, column in enumerate(columns)
    }
    wanted = {number: min(needed, columns[number].width_max) for number, needed in natural.items()}
    dispensable = sorted((column.dispensable, number) for number, column in enumerate(columns) if column.dispensable)
    while True:
        widths, excess = _shrunk(columns, wanted, width)
        if excess <= 0 or not dispensable:
            return list(widths.items())
        del wanted[dispensable.pop()[1]]


def _shrunk(columns: Sequence[Column], wanted: dict[int, int], width: int) -> tuple[dict[int, int], int]:
    """Shrink the widest columns to fit; return the widths and the excess that remains."""
    widths = dict(wanted)
    excess = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - width
    for number in sorted(widths, key=lambda number: -widths[number]):
        cut = max(min(excess, widths[number] - (columns[number].width_min or widths[number])), 0)
        widths[number] -= cut
        excess -= cut
    return widths, excess
