"""Audit log of the console: one JSON line before each change is tried, and one with its result.

The lines are synced, in `audit.jsonl` below the console's data directory, which is rotated at 64 MB.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from orbitlog.settings.atomic_file import create_directory

FILE_NAME = "audit.jsonl"
FILE_BYTES_MAX = 64 << 20
_TEXT_MAX = 1000
_TAIL_BYTES = 1 << 20


class ConsoleAudit:
    """Appends audit lines; a line that cannot be written prevents the change."""

    def __init__(self, directory: Path, now_ms: Callable[[], int]) -> None:
        self.path = directory / FILE_NAME
        self._now_ms = now_ms

    def write(self, **fields: Any) -> None:
        """Append one line and sync it; raise `OSError` if that fails."""
        create_directory(self.path.parent, 0o700)
        self._rotate()
        line = orjson.dumps({"at": self._now_ms(), **{key: _short(value) for key, value in fields.items()}}) + b"\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.write(descriptor, line)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        try:
            if self.path.stat().st_size < FILE_BYTES_MAX:
                return
        except FileNotFoundError:
            return
        self.path.replace(self.path.with_suffix(".jsonl.1"))

    def newest(self, count: int) -> list[dict[str, Any]]:
        """Return the newest lines, newest first."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL_BYTES))
                lines = file.read(_TAIL_BYTES).split(b"\n")
        except FileNotFoundError:
            return []
        if size > _TAIL_BYTES:
            lines = lines[1:]  # the first one may be cut
        found: list[dict[str, Any]] = []
        for line in reversed(lines):
            if not line.strip():
                continue
            try:
                entry = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue  # torn by a crash
            if isinstance(entry, dict):
                found.append(entry)
            if len(found) == count:
                break
        return found


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _TEXT_MAX:
        return value[: _TEXT_MAX - 1] + "…"
    return value
