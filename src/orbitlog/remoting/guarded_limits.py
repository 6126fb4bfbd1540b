"""Limits of a server that strangers can reach: from its settings, with budgets for every request code."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable

from orbitlog.formats.java import INT_MAX
from orbitlog.remoting.flow import RemotingLimits
from orbitlog.remoting.memory_budget import MemoryLimits
from orbitlog.settings import limits as keys
from orbitlog.settings.limits import Limits
from orbitlog.wire.command_decoding import WireLimits
from orbitlog.wire.request_budgets import RequestBudgets


def guarded_limits(
    limits: Limits,
    *,
    connections: int,
    idle_seconds: float = 120.0,
    message_bytes: Callable[[], int] | None = None,
    slow_ms: int = 0,
    last_append_ms: Callable[[], int] = int,
) -> RemotingLimits:
    """Return the limits of a broker or name server; `message_bytes` returns a broker's `maxMessageSize`."""
    return RemotingLimits(
        wire=WireLimits(
            header_bytes_max=limits[keys.LARGE_HEADER_BYTES], budgets=RequestBudgets(limits, message_bytes)
        ),
        connections=connections,
        per_address=limits[keys.CONNECTIONS_PER_ADDRESS],
        memory=MemoryLimits(
            limits[keys.MEMORY_BYTES], limits[keys.MEMORY_PER_ADDRESS], limits[keys.MEMORY_PER_CONNECTION]
        ),
        first_frame_seconds=float(limits[keys.FIRST_FRAME_SECONDS]),
        descriptors=descriptors_for_connections(limits[keys.DESCRIPTOR_RESERVE]),
        idle_seconds=idle_seconds,
        slow_seconds=slow_ms / 1000 if slow_ms else math.inf,
        last_append_ms=last_append_ms,
    )


def descriptors_for_connections(reserve: int) -> int:
    """Return the first file descriptor number that a connection may not have; the reserve is at most half of all.

    The system gives out the lowest free number, so a high number means that most descriptors are in use.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return INT_MAX
    return soft - min(reserve, soft // 2)
