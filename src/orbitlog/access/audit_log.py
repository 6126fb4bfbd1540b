"""Audit log: refusals and administrative requests, one JSON object a line, in files that are rotated by size.

A refusal that repeats is written once, and after a minute with its count: a client without permission retries for
ever. Different refusals are limited to a number a minute. Secrets, signatures and bodies are never part of a line;
texts from outside are escaped and have a maximum length.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

import orjson

from orbitlog.access.request_guard import AccessEvent
from orbitlog.settings.atomic_file import open_for_append
from orbitlog.wire.codes import RequestCode

FILE_BYTES_MAX = 16 * 1024 * 1024
FILES_KEPT = 5
_REPEAT_MS = 60_000
_KINDS_MAX = 4096
REFUSALS_PER_MINUTE_MAX = 600
_NAMES = {int(code): code.name for code in RequestCode}

log = logging.getLogger(__name__)


class _AuditFile(RotatingFileHandler):
    """A file below the store that other users cannot read; a link or pipe in its place is an `OSError`."""

    def _open(self) -> TextIOWrapper:
        return os.fdopen(open_for_append(Path(self.baseFilename)), "a", encoding="utf-8")


class AuditLog:
    """Writes access events to a file; the file is created with the first one."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._handler = _AuditFile(path, maxBytes=FILE_BYTES_MAX, backupCount=FILES_KEPT, encoding="utf-8", delay=True)
        self._handler.handleError = self._fail  # type: ignore[method-assign] # else it prints a traceback
        self._repeated: dict[AccessEvent, tuple[int, int]] = {}  # when a refusal was written, and how often since then
        self._window_ms, self._written, self._left_out = now_ms(), 0, 0  # refusals since the window began
        self._has_failed = False

    def write(self, event: AccessEvent) -> None:
        """Write an event; a refusal that was written within the last minute is counted instead."""
        now_ms = self._now_ms()
        count = 1
        if not event.is_allowed:
            written_ms, repeats = self._repeated.get(event, (now_ms - _REPEAT_MS, 0))
            if now_ms - written_ms < _REPEAT_MS:
                self._repeated[event] = written_ms, repeats + 1
                return
            if len(self._repeated) >= _KINDS_MAX:
                self._repeated.clear()
            self._repeated[event] = now_ms, 0
            count += repeats
            if not self._has_room(now_ms):
                return
        self._write_line(event, count, now_ms)

    def _has_room(self, now_ms: int) -> bool:
        """Return whether a refusal may be written now: a peer that varies names must not fill the files.

        Refusals that are left out are counted; the next minute begins with their number.
        """
        if now_ms - self._window_ms >= _REPEAT_MS:
            self._write_left_out(now_ms)
            self._window_ms, self._written = now_ms, 0
        self._written += 1
        if self._written <= REFUSALS_PER_MINUTE_MAX:
            return True
        self._left_out += 1
        return False

    def _write_left_out(self, now_ms: int) -> None:
        count, self._left_out = self._left_out, 0
        if count:
            reason = f"further refusals: only {REFUSALS_PER_MINUTE_MAX} different ones a minute are written"
            self._write_line(AccessEvent(False, "", "", 0, (), reason), count, now_ms)

    def close(self) -> None:
        """Write the counts of repeated refusals, and close the file."""
        self._write_left_out(self._now_ms())
        repeated, self._repeated = self._repeated, {}
        for event, (_, repeats) in repeated.items():
            if repeats:
                self._write_line(event, repeats, self._now_ms())
        self._handler.close()

    def _write_line(self, event: AccessEvent, count: int, now_ms: int) -> None:
        line = {
            "time": datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            "decision": _decision(event),
            "account": _printable(event.account),
            "address": event.ip,
            "code": event.code,
            "request": _NAMES.get(event.code, "UNKNOWN"),
            "resources": [_printable(name) for name in event.resources],
            "reason": _printable(event.reason),
            "count": count,
        }
        record = logging.LogRecord("audit", logging.INFO, "", 0, orjson.dumps(line).decode(), (), None)
        self._handler.emit(record)

    def _fail(self, record: logging.LogRecord) -> None:
        if not self._has_failed:
            self._has_failed = True
            log.error("could not write the audit log %s", self._handler.baseFilename)


def _decision(event: AccessEvent) -> str:
    if not event.is_allowed:
        return "refused"
    return "failed" if event.is_failed else "allowed"


def _printable(text: str) -> str:
    """Return a text without control characters and unpaired surrogates."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
