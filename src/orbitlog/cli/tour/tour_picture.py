"""SVG image of the tour's terminal output, drawn by rich."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orbitlog.cli.tour.tour_report import TourReport

_WIDTH = 118
# rich embeds links to web fonts, which pages that show the image do not load: a monospace font suffices.
_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def draw_report(report: TourReport, places: dict[str, str], picture: Path) -> None:
    """Write all lines and the final table into a file, with the directory of the tour replaced by DIR."""
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
    for step in report.shown:
        table.add_row(step.what, Text(step.result, style="" if step.holds else "red"), f"{step.seconds:.1f} s")
    for what in report.left_out:
        table.add_row(what, "skipped", "")
    table.add_row("in all", "all as expected" if report.holds else "NOT all as expected", f"{report.seconds:.1f} s")
    return table
