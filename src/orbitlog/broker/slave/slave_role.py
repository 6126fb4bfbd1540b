"""Slave role: follows the log and the tables of the master that name servers name. Mirrors `HAClient` and its wiring.

The role is fixed while the broker runs: to promote a slave, stop it and start its store as a master.
"""

from __future__ import annotations

import asyncio
import logging

from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.slave.first_request import whole_log_offset
from orbitlog.broker.slave.fit_check import check_fit, is_number, master_settings
from orbitlog.broker.slave.table_sync import TableSync
from orbitlog.errors import RemotingError
from orbitlog.remoting.client import RemotingClient
from orbitlog.replication.master_connection import MasterLimits
from orbitlog.replication.master_link import LinkStatus, MasterLink
from orbitlog.wire.nameserver_headers import RegisterBrokerResponse

log = logging.getLogger(__name__)

_SOON_MS = 500
_SEND_WAIT_MS_MAX = 600_000
_SEND_MARGIN_S = 1.0


class SlaveRole:
    """Follows one master."""

    def __init__(self, state: BrokerState, client: RemotingClient, tables: TableSync) -> None:
        self._state = state
        self._client = client
        self._tables = tables
        settings = state.settings
        limits = MasterLimits(
            settings[ha_keys.HA_HEARTBEAT_MS] / 1000,
            settings[ha_keys.HA_SILENCE_MS] / 1000,
            acknowledges=not settings[ha_keys.OBSERVER],
        )
        self._link = MasterLink(state.store, limits, state.message_appended, self._prepare)
        self._copied_from = ""
        self._fitting_master = ""  # tables of a master whose log does not fit would delete the queues of this one
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

    async def _prepare(self) -> int | None:
        """Compare the stores before a connection; return the offset from which an empty one must be sent."""
        store, client, master = self._state.store, self._client, self.master_address
        if not master:
            log.info("no name server names the master: its log is not compared with this one, and no tables are copied")
            return None
        self._fitting_master = ""
        await check_fit(store, client, master)
        self._fitting_master = master
        first_offset = None
        if not store.received_to and self._state.settings[ha_keys.FIRST_REQUEST] == "first":
            first_offset = await whole_log_offset(store, client, master)
        if self._state.settings[ha_keys.OBSERVER] and (store.received_to or first_offset):
            await self._outwait_sends(master)
        return first_offset

    async def _outwait_sends(self, master: str) -> None:
        """Wait until no send waits for a slave whose message this observer may have.

        The first report of a connection states the end of the log, and a Java master takes it for an acknowledgement.
        """
        text = (await master_settings(self._client, master)).get(ha_keys.SLAVE_TIMEOUT_MS.key, "")
        timeout_ms = int(text) if is_number(text) else ha_keys.SLAVE_TIMEOUT_MS.default
        await asyncio.sleep(min(timeout_ms, _SEND_WAIT_MS_MAX) / 1000 + _SEND_MARGIN_S)

    @property
    def _fits_master(self) -> bool:
        return bool(self.master_address) and self._fitting_master == self.master_address

    async def copy_tables(self) -> None:
        """Copy the tables of the master now; raise `RemotingError` if that fails."""
        if not self._fits_master:
            raise RemotingError("no master was found whose log fits this one")
        await self._tables.copy_all(self.master_address)

    async def _copy_tables(self) -> None:
        master = self.master_address
        if not self._fits_master:
            return
        try:
            await self._tables.copy_all(master)
        except RemotingError as error:
            self._report_failure(master, error)
            return
        self._reported = ""
        if self._copied_from != master:
            log.info("copied the tables of master %s", master)
        self._copied_from = master

    def _report_failure(self, master: str, error: Exception) -> None:
        """Log a failed copy once: it is retried every few seconds, mostly with the same result."""
        if str(error) != self._reported:
            log.warning("could not copy the tables of master %s, retrying: %s", master, error)
        self._reported = str(error)
