from __future__ import annotations

import io
import os
import sys

import pytest

from orbitlog.cli import job_options
from orbitlog.cli.job_options import JobProgress, progress_line

MEBIBYTE = 1024 * 1024
COLUMNS = 60


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def set_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal; called by the test itself, as pytest replaces stderr after fixtures are set up."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(
        job_options.shutil, "get_terminal_size", lambda fallback=(80, 24): os.terminal_size((COLUMNS, 24))
    )
    return stream


def test_progress_line_has_share_rates_and_remaining_time() -> None:
    line = progress_line("scan", MEBIBYTE, 4 * MEBIBYTE, 2000, 2.0)
    assert line == f"scan [{'#' * 10}{'-' * 30}] 25%  512.0 KiB/s  1,000 messages/s  0:06"
    assert progress_line("scan", MEBIBYTE, 101 * MEBIBYTE, 0, 1.0).endswith("1.0 MiB/s  1:40")


@pytest.mark.parametrize(("done", "total"), [(0, 10), (0, 0), (11, 10)])
def test_progress_line_at_the_ends(done: int, total: int) -> None:
    line = progress_line("scan", done, total, 0, 0.0)
    assert ("100%" in line) == (done >= total) and ("0:00" in line) == (done > 0)


def test_progress_on_a_terminal_overwrites_one_line_and_clears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = set_terminal(monkeypatch)
    with JobProgress() as show:
        assert show is not None
        show("first", 1, 100, 1)
        show("first", 2, 100, 2)  # too soon after the line before
        show("second", 1, 100, 1)
    pieces = terminal.getvalue().split("\r")
    assert [piece.split(" ")[0] for piece in pieces] == ["", "first", "second", "\x1b[K"]
    assert all(len(piece.removesuffix("\x1b[K")) < COLUMNS for piece in pieces)
    assert "\n" not in terminal.getvalue()


def test_progress_without_a_terminal_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = set_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with JobProgress() as show:
        assert show is None
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with JobProgress() as show:
        assert show is None
    assert terminal.getvalue() == ""
