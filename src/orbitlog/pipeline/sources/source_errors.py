"""Errors of reading topics and logs; a light module, because processes beside the driver import it for each call."""

from __future__ import annotations

from orbitlog.errors import OrbitlogError


class DataLoss(OrbitlogError):
    """Requested messages were deleted or are damaged."""


class BrokerUnavailable(OrbitlogError):
    """No broker of a group answers, or none has the requested messages yet; a later attempt may succeed."""
