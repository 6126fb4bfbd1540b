"""Limits of a server that strangers can reach: from its settings, with budgets for every request code."""

from __future__ import annotations

from collections.abc import Callable

from orbitlog.remoting.flow import RemotingLimits
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
) -> RemotingLimits:
    """Return the limits of a broker or name server; `message_bytes` returns a broker's `maxMessageSize`."""
    return RemotingLimits(
        wire=WireLimits(
            header_bytes_max=limits[keys.LARGE_HEADER_BYTES], budgets=RequestBudgets(limits, message_bytes)
        ),
        connections=connections,
        idle_seconds=idle_seconds,
    )
