"""W3C trace context in message properties: the ids of the span that created a message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

TRACEPARENT, TRACE_CONTEXT = "traceparent", "TRACE_CONTEXT"
"""Properties with the value of a `traceparent` header: of clients of 4.x, and of gRPC clients of 5.x."""
_VALUE = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = 1


class CreationIds(NamedTuple):
    """The ids of a trace and of a span in it, and whether the trace is recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool


def creation_ids(properties: Mapping[str, str]) -> CreationIds | None:
    """Return the ids in a message's properties; None if they are missing or invalid."""
    match = _VALUE.fullmatch(properties.get(TRACEPARENT) or properties.get(TRACE_CONTEXT) or "")
    if match is None or not match[1].strip("0") or not match[2].strip("0"):
        return None
    return CreationIds(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))
