"""Log lines: one record is one line, whatever text of a peer it contains.

The formatter escapes control characters, so that a client id with a line end cannot add a line of its own, and cuts
long values. A place in the code that peers make repeat its line has a limit. Log files are private to the user and its
group, and are opened without following a link.
"""

from __future__ import annotations

import json
import logging
import os
import time
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from orbitlog.cli.output.display_text import printable
from orbitlog.storefiles.confined.regular_files import open_regular

VALUE_CHARACTERS_MAX = 1024
LINE_CHARACTERS_MAX = 8192
LINES_PER_MINUTE_MAX = 1_000
"""Lines of one place in the code."""
_MINUTE_S = 60.0
_INDENT = "    "
TEXT, JSON = "text", "json"


def cut(text: str, characters_max: int) -> str:
    """Return at most that many characters of a text, and how many were left out."""
    if len(text) <= characters_max:
        return text
    return f"{text[:characters_max]}… ({len(text) - characters_max} characters more)"


class LineFormatter(logging.Formatter):
    """Formats a record as one line; the lines of a traceback follow with an indent."""

    def format(self, record: logging.LogRecord) -> str:
        if isinstance(record.args, tuple):
            record.args = tuple(
                cut(value, VALUE_CHARACTERS_MAX) if isinstance(value, str) else value for value in record.args
            )
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(cut(record.message, LINE_CHARACTERS_MAX))
        if left_out := getattr(record, "left_out", 0):
            record.message += f" ({left_out} lines like it were left out before)"
        return super().formatMessage(record)

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


class LineRate(logging.Filter):
    """Leaves out records of a place in the code that logs very often; the next minute begins with their number."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], tuple[float, int]] = {}  # start of the minute, and records since then

    def filter(self, record: logging.LogRecord) -> bool:
        place = record.pathname, record.lineno
        started_s, count = self._places.get(place, (record.created, 0))
        if record.created - started_s >= _MINUTE_S:
            record.left_out = max(count - LINES_PER_MINUTE_MAX, 0)
            started_s, count = record.created, 0
        self._places[place] = started_s, count + 1
        return count < LINES_PER_MINUTE_MAX


def _indented(text: str) -> str:
    """Indent each line: the message of an exception may contain lines that look like records."""
    lines = (printable(cut(line, VALUE_CHARACTERS_MAX)) for line in text.splitlines())
    return "\n".join(_INDENT + line for line in lines)


class JsonFormatter(LineFormatter):
    """Formats a record as one JSON object: time, level, logger, message, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)  # fills in `message` and `exc_text`, cut and escaped
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.message,
        }
        if record.exc_info is not None and record.exc_info[0] is not None:
            fields["error.type"] = record.exc_info[0].__name__
            fields["error.stack"] = text.partition("\n")[2]
        return json.dumps(fields, ensure_ascii=False)


def line_formatter(log_format: str, text_layout: str) -> logging.Formatter:
    """Return the formatter of `--log-format`; `text_layout` is the layout of a line of text."""
    return JsonFormatter("%(message)s") if log_format == JSON else LineFormatter(text_layout)


class LogFile(RotatingFileHandler):
    """A log file that is rotated by size; a link or a pipe in its place raises `StoreLinkError`."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.addFilter(LineRate())

    def _open(self) -> TextIOWrapper:
        descriptor = open_regular(Path(self.baseFilename), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")
