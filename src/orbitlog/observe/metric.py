"""Metrics: declarations of families, histograms, and the rows that readers produce when metrics are collected.

A reader is a generator. It yields a family with its rows, or `PAUSE` after some milliseconds of work, so that the event
loop can serve requests in between.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"

_SPECIAL = re.compile(r'[\\"\n]')
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


@lru_cache(maxsize=16_384)  # a topic or group is in many series
def escape_label(value: str) -> str:
    """Return a label value as both text formats write it."""
    return _SPECIAL.sub(lambda match: _ESCAPES[match[0]], value) if _SPECIAL.search(value) else value


def label_text(names: Sequence[str], values: Sequence[object]) -> str:
    """Return `name="value",…`; booleans as Java writes them."""
    return ",".join(
        f'{name}="{escape_label(_as_text(value))}"' for name, value in zip(names, values, strict=True) if name
    )


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Metric:
    """One family: its name at the endpoint, type, help, label names, and the upper bounds of a histogram's buckets."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    fixed: str = ""
    """Text of labels that have the same value in every row."""

    def text(self, *values: object) -> str:
        """Return the label text of one row."""
        return label_text(self.labels, values)


class Histogram:
    """Counts of observed values by bucket, and their sum; plain integers that one thread changes."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, value: float, count: int = 1) -> None:
        """Count `count` values that are all equal."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count


Value = int | float | Histogram


class Row(NamedTuple):
    """One series: its label text and value."""

    labels: str
    value: Value


class Family(NamedTuple):
    """A family with its rows; `dropped` series were left out by the reader because there are too many."""

    metric: Metric
    rows: Sequence[Row]
    dropped: int = 0


class _Pause(Enum):
    PAUSE = "pause"


PAUSE: Final = _Pause.PAUSE
Collected = Iterator[Family | _Pause]
Reader = Callable[[int], Collected]
"""Yields the families of one subject. The argument is the maximum of series of one family."""


def single(metric: Metric, value: Value) -> Family:
    """Return a family with one series without labels."""
    return Family(metric, (Row("", value),))
