"""Report of the tour: a line with the time for each step, and a table or a JSON object at the end."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import click

from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable, shows_colour
from orbitlog.cli.output.terminal import styled


@dataclass(frozen=True, slots=True)
class Shown:
    """One step of the tour: its name for scripts, description, result and figures."""

    name: str
    what: str
    result: str
    holds: bool
    seconds: float
    facts: dict[str, Any]


@dataclass(slots=True)
class TourReport:
    """Prints lines to stdout, or to stderr if stdout is for JSON; keeps them for the SVG image."""

    as_json: bool
    shown: list[Shown] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    _started_s: float = field(default_factory=time.perf_counter)
    _act_s: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._started_s

    @property
    def holds(self) -> bool:
        return bool(self.shown) and all(step.holds for step in self.shown)

    def begin(self, title: str) -> None:
        """Begin an act, and the time measurement of its first step."""
        self._act_s = time.perf_counter()
        self._write("bold", f"\n{title}")

    def say(self, text: str) -> None:
        self._write("", f"  {self.seconds:5.1f} s  {text}")

    def command(self, text: str) -> None:
        """Print the command that does the same by hand."""
        self._write("cyan", f"           $ {text}")

    def show(self, name: str, what: str, result: str, *, holds: bool = True, **facts: Any) -> None:
        """Record the result of a step, and print it; `holds` is whether it is as expected."""
        seconds = time.perf_counter() - self._act_s
        self._act_s = time.perf_counter()
        self.shown.append(Shown(name, what, result, holds, seconds, facts))
        self._write("green" if holds else "red", f"  {self.seconds:5.1f} s  {'' if holds else 'FAILED: '}{result}")

    def leave_out(self, what: str, reason: str) -> None:
        self.left_out.append(what)
        self._write("yellow", f"  {self.seconds:5.1f} s  skipped: {what}: {reason}")

    def _write(self, style: str, text: str) -> None:
        self.lines.append((style, text))
        chosen = {"bold": {"bold": True}, "": {}}.get(style, {"fg": style})
        is_styled = bool(style) and shows_colour() and not self.as_json
        click.echo(styled(text, **chosen) if is_styled else text, err=self.as_json)
        (sys.stderr if self.as_json else sys.stdout).flush()

    def write_end(self, places: dict[str, str]) -> None:
        if self.as_json:
            click.echo(json.dumps(self.as_object(places), separators=(",", ":")))
            return
        self._write("", "")
        with LineWriter() as writer:
            table = StreamTable(
                writer,
                (
                    Column("shown", style="green"),
                    Column("result", width_max=100, width_min=40),
                    Column("took", right=True),
                ),
            )
            for step in self.shown:
                table.row((step.what, step.result if step.holds else f"FAILED: {step.result}", f"{step.seconds:.1f} s"))
            for what in self.left_out:
                table.row((what, "skipped", ""))
            table.row(("in all", "all as expected" if self.holds else "NOT all as expected", f"{self.seconds:.1f} s"))
            table.finish()
            writer.line("")
            for name, place in places.items():
                writer.line(f"{name:<16} {place}")

    def as_object(self, places: dict[str, str]) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        return {
            "holds": self.holds,
            "seconds": round(self.seconds, 3),
            "leftOut": self.left_out,
            "places": places,
            "shown": [
                {
                    "name": step.name,
                    "holds": step.holds,
                    "seconds": round(step.seconds, 3),
                    "result": step.result,
                    **step.facts,
                }
                for step in self.shown
            ],
        }
