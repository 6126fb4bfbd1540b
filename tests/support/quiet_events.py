"""Broker events without effect, for tests that run parts of a broker: no dispatch, no saving, no registration."""

from __future__ import annotations

from orbitlog.broker.runtime.broker_state import BrokerEvents


def _ignore() -> None:
    """Do nothing: the test itself dispatches, flushes and saves."""


async def _do_not_wait() -> None:
    """Return at once: nothing is saved."""


QUIET = BrokerEvents(_ignore, _ignore, save_soon=_ignore, save_tables=_do_not_wait)
