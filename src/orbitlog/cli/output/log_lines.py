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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any

from orbitlog.cli.output.display_text import printable
from orbitlog.observe.metrics_settings import LOG_JSON
from orbitlog.storefiles.confined.regular_files import open_regular

VALUE_CHARACTERS_MAX = 1024
LINE_CHARACTERS_MAX = 8192
LINES_PER_MINUTE_MAX = 1_000
"""Lines of one place in the code."""
REPEATS_PER_MINUTE_MAX = 10
REPEATS_KEPT_MAX = 1_000
"""Different lines of which repeats are counted."""
_MINUTE_S = 60.0
_INDENT = "    "


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
        if repeated := getattr(record, "repeated", 0):
            record.message += f" (repeated {repeated} times)"
        return super().formatMessage(record)

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


class LineRate(logging.Filter):
    """Leaves out records of a place in the code that logs very often; the next minute begins with their number.

    Used before `RepeatLimit`, which leaves out repeated lines: these here may all differ.
    """

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


@dataclass(slots=True)
class _Repeats:
    """A line that repeats: when its minute began, how often it was logged, and the last record that was left out."""

    started_s: float
    count: int = 0
    left_out: int = 0
    last: logging.LogRecord | None = None


class RepeatLimit(logging.Handler):
    """Passes records on, of repeated ones ten a minute; then one record with the number of those left out.

    Records are repeated if they come from the same place with the same text, or with the same `event` and subject:
    figures in their text may differ.
    """

    def __init__(self, targets: Sequence[logging.Handler]) -> None:
        super().__init__()
        self.targets = list(targets)
        self._repeats: dict[tuple[object, ...], _Repeats] = {}  # the oldest minute first

    def emit(self, record: logging.LogRecord) -> None:
        self.report(record.created)
        event = getattr(record, "event", "")
        detail = getattr(record, "fields", {}).get("subject", "") if event else record.getMessage()
        key = record.pathname, record.lineno, event, detail
        repeats = self._repeats.get(key)
        if repeats is None:
            if len(self._repeats) >= REPEATS_KEPT_MAX:
                self._end(next(iter(self._repeats)))
            repeats = self._repeats[key] = _Repeats(record.created)
        repeats.count += 1
        if repeats.count <= REPEATS_PER_MINUTE_MAX:
            self._pass_on(record)
        else:
            repeats.left_out += 1
            repeats.last = record

    def report(self, now_s: float) -> None:
        """Log the number of records left out in minutes that are over."""
        while self._repeats:
            key, repeats = next(iter(self._repeats.items()))
            if now_s - repeats.started_s < _MINUTE_S:
                return
            self._end(key)

    def _end(self, key: tuple[object, ...]) -> None:
        repeats = self._repeats.pop(key)
        if repeats.last is not None:
            repeats.last.repeated = repeats.left_out
            self._pass_on(repeats.last)

    def _pass_on(self, record: logging.LogRecord) -> None:
        for target in self.targets:
            if record.levelno >= target.level:
                target.handle(record)

    def close(self) -> None:
        """Log the number of all records left out so far, and close the targets."""
        for key in list(self._repeats):
            self._end(key)
        for target in self.targets:
            target.close()
        super().close()


def _indented(text: str) -> str:
    """Indent each line: the message of an exception may contain lines that look like records."""
    lines = (printable(cut(line, VALUE_CHARACTERS_MAX)) for line in text.splitlines())
    return "\n".join(_INDENT + line for line in lines)


class JsonFormatter(LineFormatter):
    """Formats a record as one JSON object: time, level, logger, message, event, its fields, and an exception."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)  # fills in `message` and `exc_text`, cut and escaped
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.message,
        }
        if event := getattr(record, "event", ""):
            fields |= {"event": event, **_shown(getattr(record, "fields", {}))}
        if repeated := getattr(record, "repeated", 0):
            fields["repeated"] = repeated
        if record.exc_info is not None and record.exc_info[0] is not None:
            fields["error.type"] = record.exc_info[0].__name__
            fields["error.message"] = printable(cut(str(record.exc_info[1]), VALUE_CHARACTERS_MAX))
            fields["error.stack"] = text.partition("\n")[2]
        return _printable_json(json.dumps(fields, ensure_ascii=False))


def _printable_json(text: str) -> str:
    """Return JSON with everything that is not printable as an escape of JSON, so that a reader gets the same values.

    `json` and `orjson` escape the lower control characters only: not those from 0x7f on, nor line separators, nor
    characters that reverse the direction of text.
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else json.dumps(character)[1:-1] for character in text)


def _shown(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of an event; texts of peers are cut."""
    return {
        name: cut(value, VALUE_CHARACTERS_MAX) if isinstance(value, str) else value for name, value in fields.items()
    }


def line_formatter(log_format: str, text_layout: str) -> logging.Formatter:
    """Return the formatter of `--log-format`; `text_layout` is the layout of a line of text."""
    return JsonFormatter("%(message)s") if log_format == LOG_JSON else LineFormatter(text_layout)


class LogFile(RotatingFileHandler):
    """A log file that is rotated by size; a link or a pipe in its place raises `StoreLinkError`."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.addFilter(LineRate())

    def _open(self) -> TextIOWrapper:
        descriptor = open_regular(Path(self.baseFilename), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")
