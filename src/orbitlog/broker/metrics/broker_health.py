"""Broker health: the reasons why a broker should get no new clients, and why it should be restarted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.registration import Registration

if TYPE_CHECKING:
    from orbitlog.broker.slave.slave_role import SlaveRole


class BrokerHealth:
    """Judges one broker by its state; nothing is measured.

    The port of health opens after recovery. A slave is ready once it has followed its master: afterwards consumers can
    read from it, also while the master is away.
    """

    def __init__(self, state: BrokerState, registration: Registration, slave: SlaveRole | None = None) -> None:
        self._state = state
        self._registration = registration
        self._slave = slave
        self._has_followed = False

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
        if availability.fence_reason and self._slave is None:
            problems.append("the replica group accepts no messages now")
        if state.settings[keys.NAME_SERVERS] and not self._registration.is_known:
            problems.append("no name server knows this broker")
        if self._slave is not None and not self._is_following(self._slave):
            problems.append("the slave has not followed a master yet")
        return problems

    def _is_following(self, slave: SlaveRole) -> bool:
        """Return whether a slave follows its master, or has done so since its start."""
        self._has_followed = self._has_followed or slave.link.is_connected
        return self._has_followed
