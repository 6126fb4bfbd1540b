"""JSON log lines: one object a record, whatever text it contains."""

from __future__ import annotations

import json
import logging
import sys

from orbitlog.cli.output.log_lines import JsonFormatter, LineFormatter, RepeatLimit, line_formatter
from orbitlog.observe.metrics_settings import LOG_JSON, LOG_TEXT


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
    assert isinstance(line_formatter(LOG_JSON, "%(message)s"), JsonFormatter)
    assert type(line_formatter(LOG_TEXT, "%(message)s")) is LineFormatter


class Kept(logging.Handler):
    """Keeps the lines that reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(LineFormatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def repeated(created_s: float, text: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("orbitlog.x", logging.WARNING, "place.py", 1, text, (), None)
    made.created = created_s
    made.__dict__.update(extra)
    return made


def test_repeated_line_logged_ten_times_a_minute_then_its_number() -> None:
    kept = Kept()
    limit = RepeatLimit([kept])
    for number in range(224):
        limit.handle(repeated(number / 10, "refused"))
    limit.handle(repeated(30, "another"))
    assert kept.lines == ["refused"] * 10 + ["another"]
    limit.report(59)
    assert len(kept.lines) == 11
    limit.report(60)
    assert kept.lines[11:] == ["refused (repeated 214 times)"]
    limit.handle(repeated(61, "refused"))
    assert kept.lines[12:] == ["refused"]


def test_event_repeats_though_its_figures_differ_and_subjects_do_not() -> None:
    kept = Kept()
    limit = RepeatLimit([kept])
    for number in range(20):
        limit.handle(repeated(1, f"took {number} ms", event="slow_request", fields={}))
        limit.handle(repeated(1, f"lost {number}", event="broker_lost", fields={"subject": str(number)}))
    assert len([line for line in kept.lines if line.startswith("took")]) == 10
    assert len([line for line in kept.lines if line.startswith("lost")]) == 20
    limit.close()
    assert kept.lines[-1] == "took 19 ms (repeated 10 times)"


def test_event_and_its_fields_are_keys_of_the_object() -> None:
    made = repeated(1, "took 700 ms", event="slow_request", fields={"duration_ms": 700, "client": "c" * 2000})
    fields = json.loads(JsonFormatter("%(message)s").format(made))
    assert (fields["event"], fields["duration_ms"]) == ("slow_request", 700)
    assert len(fields["client"]) < 1100
