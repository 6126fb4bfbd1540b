"""Broker events without effect, for tests that run parts of a broker: no dispatch, no saving, no registration."""

from __future__ import annotations

from orbitlog.broker.runtime.broker_state import BrokerEvents


def _ignore() -> None:
    """Do nothing: the test itself dispatches, flushes and saves."""


QUIET = BrokerEvents(message_appended=_ignore, topics_changed=_ignore, save_soon=_ignore)
