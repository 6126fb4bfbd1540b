"""Buffered output: writes lines to stdout in blocks, because a write call costs more than formatting a line."""

from __future__ import annotations

import sys
from types import TracebackType

_BLOCK_CHARACTERS = 1 << 16
_BLOCK_CHARACTERS_ON_TERMINAL = 1 << 11


class LineWriter:
    """Collects lines and writes them in blocks; a `with` block flushes when it ends."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._characters = 0
        self._limit = _BLOCK_CHARACTERS_ON_TERMINAL if sys.stdout.isatty() else _BLOCK_CHARACTERS

    def line(self, text: str) -> None:
        self._lines.append(text)
        self._characters += len(text)
        if self._characters >= self._limit:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            self._lines.append("")
            block = "\n".join(self._lines)
            self._lines.clear()
            self._characters = 0
            sys.stdout.write(block)
            sys.stdout.flush()

    def __enter__(self) -> LineWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        # After a closed pipe another write would only fail as well.
        if kind is None or not issubclass(kind, BrokenPipeError):
            self.flush()
