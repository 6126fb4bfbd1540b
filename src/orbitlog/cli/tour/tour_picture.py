"""The tour's output as a picture: what a terminal would show, drawn as SVG by rich."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orbitlog.cli.tour.tour_report import TourReport

_WIDTH = 118
# Fonts from elsewhere, which no page that shows the picture would load; a terminal's own font does.
_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def draw_report(report: TourReport, places: dict[str, str], picture: Path) -> None:
    """Write what was said, and the table at the end, into a file; the files' directory is shown as DIR."""
    directory = str(Path(places["store"]).parent)
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ orbitlog demo", style="bold cyan"))
    for style, line in report.lines:
        console.print(Text(line.replace(directory, "DIR"), style=style), overflow="ellipsis", no_wrap=True)
    console.print()
    console.print(_table(report))
    drawn = _COMMENT.sub("", _FONT_FACE.sub("", console.export_svg(title="orbitlog demo", unique_id="tour")))
    picture.write_text(drawn.replace("Fira Code, monospace", "monospace"))


def _table(report: TourReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("shown", style="green", no_wrap=True)
    table.add_column("result", overflow="ellipsis", no_wrap=True)
    table.add_column("took", justify="right", no_wrap=True)
    for one in report.shown:
        table.add_row(one.what, Text(one.result, style="" if one.holds else "red"), f"{one.seconds:.1f} s")
    for what in report.left_out:
        table.add_row(what, "left out", "")
    table.add_row("in all", "everything holds" if report.holds else "NOT everything holds", f"{report.seconds:.1f} s")
    return table
