"""Slow-request log: requests that took longer than `slowRequestMs`, with the time of each phase.

Phases of a send: `read and rules` from the read of its bytes to its append, `append`, the waits for the flush and for
slaves, and `write` while the peer does not read its responses. A turn of a connection costs one reading of the clock:
the time of its last read is known, and the store keeps the timestamp of its last append anyway.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitlog.remoting.error_ids import request_id, request_name

if TYPE_CHECKING:
    from orbitlog.remoting.connection import Connection
    from orbitlog.wire.command import Command

log = logging.getLogger(__name__)

RECENT: deque[str] = deque(maxlen=10)
"""The last slow requests, as `orbitlog top` reads them: name, milliseconds, client, timestamp, phases."""
_CLOCKS_DIFFER_S = 0.002  # store timestamps are whole milliseconds


def report_turn(connection: Connection, request: Command | None, last_append_ms: int) -> None:
    """Log the requests of a connection that were read together; `request` is the last one that a handler got."""
    taken_s = time.monotonic() - connection.active_at
    since_append_s = time.time() - last_append_ms / 1000
    # An append in this turn: everything after its start is part of it.
    if since_append_s <= taken_s + _CLOCKS_DIFFER_S:
        append_s = min(max(since_append_s, 0.0), taken_s)
        phases = {"read and rules": taken_s - append_s, "append": append_s}
    else:
        phases = {"handler": taken_s}
    report(connection.peer, request.code if request else 0, request.opaque if request else 0, phases)


def report_awaited(connection: Connection, request: Command, waited_s: float) -> None:
    """Log a request whose handler waited, for example for a flush of a table."""
    report(connection.peer, request.code, request.opaque, {"handler": waited_s})


def report_write(connection: Connection, paused_s: float) -> None:
    """Log a connection whose peer did not read its responses."""
    report(connection.peer, 0, 0, {"write": paused_s})


def report(peer: str, code: int, opaque: int, phases: Mapping[str, float], *, count: int = 1) -> None:
    """Log a slow request; a code of 0 stands for requests that were handled together."""
    number = request_id(peer, opaque)
    shown = {name: max(int(seconds * 1000), 0) for name, seconds in phases.items()}
    total_ms = sum(shown.values())
    spent = ", ".join(f"{name} {ms} ms" for name, ms in shown.items())
    name = request_name(code).lower() if code else "several"
    RECENT.append(f"{name} {total_ms} {peer} {time.time_ns() // 1_000_000} {spent}")
    log.warning(
        "slow request %s: %s of %s took %d ms: %s",
        number,
        f"{count} {request_name(code)}" if count > 1 else request_name(code) if code else "requests read together",
        peer,
        total_ms,
        spent,
        extra={
            "event": "slow_request",
            "fields": {
                **{"request_id": number, "request_code": int(code), "client": peer, "duration_ms": total_ms},
                "phases_ms": shown,
            },
        },
    )
