"""Slave role: follows the log and the tables of the master that name servers name. Mirrors `HAClient` and its wiring.

The role is fixed while the broker runs: to promote a slave, stop it and start its store as a master.
"""

from __future__ import annotations

import logging

from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.slave.fit_check import check_fit
from orbitlog.broker.slave.table_sync import TableSync
from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.replication.master_connection import MasterLimits
from orbitlog.replication.master_link import LinkStatus, MasterLink
from orbitlog.wire.nameserver_headers import RegisterBrokerResponse

log = logging.getLogger(__name__)

_SOON_MS = 500


class SlaveRole:
    """Follows one master."""

    def __init__(self, state: BrokerState, client: RemotingClient, tables: TableSync) -> None:
        self._state = state
        self._client = client
        self._tables = tables
        settings = state.settings
        limits = MasterLimits(settings[ha_keys.HA_HEARTBEAT_MS] / 1000, settings[ha_keys.HA_SILENCE_MS] / 1000)
        self._link = MasterLink(state.store, limits, state.message_appended, self._check_fit)
        self._copied_from = ""
        self._reported = ""
        self.master_address = ""
        """Address of the master for requests; empty until a name server has named one."""
        if settings[ha_keys.MASTER_HA_ADDRESS]:
            self._link.follow(settings[ha_keys.MASTER_HA_ADDRESS])

    @property
    def link(self) -> LinkStatus:
        """The connection to the master."""
        return self._link.status

    def start(self, loops: BackgroundLoops) -> None:
        """Follow the master, now or when a name server names one."""
        period_ms = self._state.settings[ha_keys.TABLE_SYNC_MS]
        loops.run("copy of the master's log", self._link.run_once)
        loops.every(
            "copy of the master's tables",
            lambda: period_ms if self._copied_from == self.master_address else _SOON_MS,
            self._copy_tables,
        )

    def found_master(self, answer: RegisterBrokerResponse) -> None:
        """Follow the master that a name server named; without one, keep the last."""
        if answer.master_address:
            self.master_address = answer.master_address
        if answer.ha_address and not self._state.settings[ha_keys.MASTER_HA_ADDRESS]:
            self._link.follow(answer.ha_address)

    async def _check_fit(self) -> None:
        if self.master_address:
            await check_fit(self._state.store, self._client, self.master_address)
        else:
            log.info("no name server names the master: its log is not compared with this one, and no tables are copied")

    async def _copy_tables(self) -> None:
        master = self.master_address
        if not master:
            return
        try:
            await self._tables.copy_all(master)
        except RemotingError as error:
            if str(error) != self._reported:
                log.warning("could not copy the tables of master %s, retrying: %s", master, error)
            self._reported = str(error)
            return
        self._reported = ""
        if self._copied_from != master:
            log.info("copied the tables of master %s", master)
        self._copied_from = master
