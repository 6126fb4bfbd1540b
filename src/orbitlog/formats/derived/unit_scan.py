"""Scan of a file of units that follow each other, up to the first thing that is not a unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from orbitlog.formats.records.message import Bytes

Found = TypeVar("Found")


def scan_units(
    buffer: Bytes, start: int, read_at: Callable[[Bytes, int], Found], size_of: Callable[[Found], int | None]
) -> Iterator[tuple[int, Found]]:
    """Yield position and unit from `start` on, then the reason for stopping; no reason if the bytes just end.

    `size_of` returns the bytes of a unit, and None for a reason.
    """
    position = start
    while position < len(buffer):
        found = read_at(buffer, position)
        yield position, found
        size_bytes = size_of(found)
        if size_bytes is None:
            return
        position += size_bytes
