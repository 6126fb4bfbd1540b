"""Results of dispatch: arrivals (messages that consumers can read now), damaged ranges, a progress callback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

Progress = Callable[[int, int], None]
"""Called with the bytes done so far and the bytes to do."""


class Arrival(NamedTuple):
    """A message that can be read from its queue now; a named tuple because one is created for every message."""

    topic: str
    queue_id: int
    queue_offset: int
    tags_code: int
    store_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class DamagedLog:
    """A range of the log without a readable record."""

    physical_offset: int
    size_bytes: int
    reason: str
