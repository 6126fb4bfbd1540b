"""Progress line on stderr, for terminals."""

from __future__ import annotations

import sys
import time
from types import TracebackType

import click

from orbitlog.cli.output.display_text import byte_count

_QUIET_FIRST_S = 1.0
_INTERVAL_S = 0.2


class Progress:
    """One line on stderr that is overwritten; silent for short work and without a terminal.

    It is also silent if stdout is the same terminal: the rows themselves show progress.
    """

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = max(total_bytes, 1)
        self._is_shown = sys.stderr.isatty() and not sys.stdout.isatty()
        self._next_s = time.monotonic() + _QUIET_FIRST_S
        self._is_dirty = False

    def update(self, done_bytes: int) -> None:
        if not self._is_shown or time.monotonic() < self._next_s:
            return
        share = min(done_bytes / self._total_bytes, 1)
        text = f"{share:4.0%} of {byte_count(self._total_bytes)}"
        click.echo(f"\r{text:<40}", nl=False, err=True)
        self._is_dirty = True
        self._next_s = time.monotonic() + _INTERVAL_S

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._is_dirty:
            click.echo(f"\r{'':<40}\r", nl=False, err=True)
