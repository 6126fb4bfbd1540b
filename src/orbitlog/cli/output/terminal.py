"""Terminal output: escapes control characters of names, bodies and errors before a terminal can execute them.

A message body can contain sequences that set the clipboard, the title or the keyboard of the terminal that shows it.
Commands escape values as they print them; the stream is the safety net for all other text. Styles of commands have a
mark that no text from outside can guess, so that a name cannot colour, hide or overwrite anything. Output into a file
or a pipe is unchanged.
"""

from __future__ import annotations

import io
import re
import secrets
import sys

import click

from orbitlog.cli.output.display_text import printable

_OWN = f"\x1b{secrets.token_hex(8)}["
"""Start of a style in text for a `TerminalStream`."""
_STYLE = rf"{re.escape(_OWN)}(?P<style>[0-9;]*m)"
_CONTROL = r"[^\n\t\x20-\x7e]"
_OUTPUT = re.compile(rf"{_STYLE}|(?P<control>{_CONTROL})")
# The progress line on stderr is overwritten: sentences there are escaped before they are printed (`error_text`).
_PROGRESS = re.compile(rf"{_STYLE}|\r|\x1b\[K|(?P<control>{_CONTROL})")


def escaped(text: str, *, is_progress: bool = False) -> str:
    """Return text with everything escaped that is not printable, a line end, a tab or a style of a command."""
    plain = text.replace("\n", "").replace("\t", "")
    if plain.isprintable():
        return text
    return (_PROGRESS if is_progress else _OUTPUT).sub(_safe, text)


def _safe(match: re.Match[str]) -> str:
    if match["control"]:
        return printable(match["control"])
    return f"\x1b[{match['style']}" if match["style"] else match[0]


def styled(text: str, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Return text in a colour or weight, for stdout; only text with a style from here is styled on a terminal."""
    start = click.style("", fg=fg, bold=bold, dim=dim, reset=False)
    style = f"{start}{text}\x1b[0m"
    if isinstance(sys.stdout, TerminalStream):
        # Only the sequences of this function get the mark, not those of the text.
        style = start.replace("\x1b[", _OWN) + text + f"{_OWN}0m"
    return style


def value_text(text: str) -> str:
    """Return a value from outside for stdout: on a terminal, everything but printable characters and tabs escaped.

    Line ends stay, so that text of several lines can be read.
    """
    if text.isprintable() or not sys.stdout.isatty():
        return text
    return _escaped_lines(text)


def error_text(text: str) -> str:
    """Return a sentence for stderr: on a terminal, everything but printable characters, tabs and line ends escaped."""
    return text if text.isprintable() or not sys.stderr.isatty() else _escaped_lines(text)


def _escaped_lines(text: str) -> str:
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


class TerminalStream(io.TextIOWrapper):
    """A text stream to a terminal that escapes control characters."""

    is_progress = False

    def write(self, text: str, /) -> int:
        super().write(escaped(text, is_progress=self.is_progress))
        return len(text)


def protect_terminal() -> None:
    """Replace stdout and stderr, if they are terminals, by streams that escape control characters."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.isatty():
            stream.flush()
            encoding, buffering = stream.encoding, stream.line_buffering
            wrapped = TerminalStream(
                stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=buffering
            )
            wrapped.is_progress = name == "stderr"
            setattr(sys, name, wrapped)
