"""SVG image of the tour's terminal output: a window with one text element for each run of one colour."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from orbitlog.cli.output.display_text import display_width, fit
from orbitlog.cli.tour.tour_report import TourReport

_COLUMNS = 118
_GAP = "  "
_CHARACTER_WIDTH, _LINE_HEIGHT, _FONT_SIZE = 12.2, 24.4, 20
_MARGIN, _TITLE_HEIGHT = 18, 40
_BUTTONS = ("#ff5f57", "#febc2e", "#28c840")
_BACKGROUND, _FOREGROUND = "#292929", "#c5c8c6"
_STYLES = {
    "": f"fill: {_FOREGROUND}",
    "bold": f"fill: {_FOREGROUND}; font-weight: bold",
    "prompt": "fill: #68a0b3; font-weight: bold",
    "cyan": "fill: #68a0b3",
    "green": "fill: #98a84b",
    "yellow": "fill: #d0b344",
    "red": "fill: #cc555a",
}


class Span(NamedTuple):
    """Text of one style within a line."""

    style: str
    text: str


def draw_report(report: TourReport, places: dict[str, str], picture: Path) -> None:
    """Write all lines and the final table into a file, with the directory of the tour replaced by DIR."""
    directory = str(Path(places["store"]).parent)
    lines = [[Span("prompt", "$ orbitlog demo")]]
    for style, text in report.lines:
        lines += [[Span(style, part)] for part in text.replace(directory, "DIR").split("\n")]
    lines += [[], *_table(report, directory)]
    picture.write_text("".join(_svg(lines)))


def _table(report: TourReport, directory: str) -> Iterator[list[Span]]:
    """Yield the lines of the final table, each as wide as the picture at most."""
    rows = [("bold", "bold", ("shown", "result", "took"))]
    for step in report.shown:
        cells = (step.what, step.result.replace(directory, "DIR"), f"{step.seconds:.1f} s")
        rows.append(("green", "" if step.holds else "red", cells))
    rows += [("green", "", (what, "skipped", "")) for what in report.left_out]
    outcome = "all as expected" if report.holds else "NOT all as expected"
    rows.append(("green", "", ("in all", outcome, f"{report.seconds:.1f} s")))
    first, last = (max(display_width(cells[column]) for _, _, cells in rows) for column in (0, 2))
    middle = _COLUMNS - first - last - 2 * len(_GAP)
    for style, result_style, (what, result, took) in rows:
        yield [
            Span(style, fit(what, first) + _GAP),
            Span(result_style, fit(result, middle) + _GAP),
            Span("bold" if style == "bold" else "", fit(took, last, right=True)),
        ]


def _svg(lines: Sequence[Sequence[Span]]) -> Iterator[str]:
    """Yield the image in pieces."""
    width = round(_COLUMNS * _CHARACTER_WIDTH + 2 * _MARGIN)
    height = round(len(lines) * _LINE_HEIGHT + _TITLE_HEIGHT + 2 * _MARGIN)
    yield f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">\n<style>\n'
    yield f"text {{ font-family: monospace; font-size: {_FONT_SIZE}px }}\n"
    for style, rules in _STYLES.items():
        yield f".{style or 'plain'} {{ {rules} }}\n"
    yield "</style>\n"
    yield f'<rect width="{width}" height="{height}" rx="8" fill="{_BACKGROUND}"/>\n'
    for number, colour in enumerate(_BUTTONS):
        yield f'<circle cx="{26 + 22 * number}" cy="24" r="7" fill="{colour}"/>\n'
    yield f'<text class="bold" x="{width / 2}" y="30" text-anchor="middle">orbitlog demo</text>\n'
    for number, spans in enumerate(lines):
        y = round(_TITLE_HEIGHT + _MARGIN + (number + 1) * _LINE_HEIGHT, 1)
        yield from _texts(spans, y)
    yield "</svg>\n"


def _texts(spans: Sequence[Span], y: float) -> Iterator[str]:
    """Yield a text element for each span that is not blank, as long as its columns in any monospace font."""
    column = 0
    for style, text in spans:
        shown = fit(text, _COLUMNS - column).rstrip()
        indent = len(shown) - len(shown.lstrip())
        if visible := shown.strip():
            x = round(_MARGIN + (column + indent) * _CHARACTER_WIDTH, 1)
            length = round(display_width(visible) * _CHARACTER_WIDTH, 1)
            # No-break spaces: a run of spaces would be drawn as one.
            content = escape(visible).replace(" ", "&#160;")
            yield f'<text class="{style or "plain"}" x="{x}" y="{y}" textLength="{length}">{content}</text>\n'
        column += display_width(text)
