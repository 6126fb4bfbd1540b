"""Broker health: the reasons why a broker should get no new clients, and why it should be restarted."""

from __future__ import annotations

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.registration import Registration


class BrokerHealth:
    """Judges one broker by its state; nothing is measured."""

    def __init__(self, state: BrokerState, registration: Registration) -> None:
        self._state = state
        self._registration = registration

    def problems(self) -> list[str]:
        """Return why the broker is not ready; empty if it is."""
        state, availability = self._state, self._state.store.availability
        problems = []
        if state.is_stopping or availability.is_closed:
            problems.append("the broker is stopping")
        if availability.failure:
            problems.append("the store is read-only after a failed sync; restart the broker")
        if availability.full_disk:
            problems.append("the disk is too full for messages")
        if state.settings[keys.NAME_SERVERS] and not self._registration.is_known:
            problems.append("no name server knows this broker")
        return problems
