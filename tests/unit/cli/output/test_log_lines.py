"""JSON log lines: one object a record, whatever text it contains."""

from __future__ import annotations

import json
import logging
import sys

from orbitlog.cli.output.log_lines import JSON, TEXT, JsonFormatter, LineFormatter, line_formatter


def record(text: str, *args: object, failed: bool = False) -> logging.LogRecord:
    info = None
    if failed:
        try:
            raise ValueError("line\nsecond")
        except ValueError:
            info = sys.exc_info()
    return logging.LogRecord("orbitlog.x", logging.WARNING, "", 0, text, args, info)


def test_record_is_one_object_a_line() -> None:
    line = JsonFormatter("%(message)s").format(record('closing %s: "%s"', "a\nb", "ü"))
    assert "\n" not in line
    fields = json.loads(line)
    assert (fields["level"], fields["logger"]) == ("warning", "orbitlog.x")
    assert "\n" not in fields["message"] and fields["message"].endswith('"ü"')
    assert fields["time"].endswith("Z") and len(fields["time"]) == len("2026-01-01T00:00:00.000Z")


def test_exception_has_type_and_stack() -> None:
    fields = json.loads(JsonFormatter("%(message)s").format(record("failed", failed=True)))
    assert fields["message"] == "failed" and fields["error.type"] == "ValueError"
    assert "test_log_lines.py" in fields["error.stack"]


def test_formatter_follows_the_option() -> None:
    assert isinstance(line_formatter(JSON, "%(message)s"), JsonFormatter)
    assert type(line_formatter(TEXT, "%(message)s")) is LineFormatter
