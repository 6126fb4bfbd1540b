"""Terminal output: escapes control characters of names, bodies and errors before a terminal can execute them.

A message body can contain sequences that set the clipboard, the title or the keyboard of the terminal that shows it.
Commands escape values as they print them; the stream is the safety net for all other text. Output into a file or a
pipe is unchanged.
"""

from __future__ import annotations

import io
import re
import sys

from orbitlog.cli.output.display_text import printable

# Colours, which commands print themselves. All other sequences are escaped, concealed text (8) as well.
_ATTRIBUTE = r"(?:[34]8;5;[0-9]{1,3}|[34]8;2(?:;[0-9]{1,3}){3}|[0-79]|[1-9][0-9]{1,2})"
_COLOUR = rf"\x1b\[(?:{_ATTRIBUTE}(?:;{_ATTRIBUTE}){{0,4}})?m"
_CONTROL = r"[^\n\t\x20-\x7e]"
_OUTPUT = re.compile(rf"({_COLOUR})|({_CONTROL})")
# The progress line on stderr moves the cursor within its line, hides it, and clears the line.
_PROGRESS = re.compile(rf"({_COLOUR}|\r|\x1b\[[0-9]{{0,3}}[AKG]|\x1b\[\?25[lh])|({_CONTROL})")


def escaped(text: str, *, is_progress: bool = False) -> str:
    """Return text with everything escaped that is not printable, a line end, a tab or a colour."""
    plain = text.replace("\n", "").replace("\t", "")
    if plain.isprintable():
        return text
    return (_PROGRESS if is_progress else _OUTPUT).sub(lambda match: match[1] or printable(match[2]), text)


def value_text(text: str) -> str:
    """Return a value from outside for stdout: on a terminal, everything but printable characters and tabs escaped.

    Line ends stay, so that text of several lines can be read.
    """
    if text.isprintable() or not sys.stdout.isatty():
        return text
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
