"""Controlled slave: a slave in a group of Apache's controller, which copies the tables of a Java or Orbitlog master."""

from __future__ import annotations

import asyncio
import logging

from orbitlog.broker.replicas.broker_group import GroupSlave
from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.background_loops import BackgroundLoops
from orbitlog.errors import FormatError, RemotingError, RequestRefused
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.replication.controller_bodies import decode_master_log_end

log = logging.getLogger(__name__)

_ASK_S = 5.0
_SOON_MS = 500
_CONFIRM_PAUSE_S = 0.05
_CONFIRM_TRIES = 200


class ControlledSlave(GroupSlave):
    """A slave whose log comes through its group; it copies the master's tables by Java's requests."""

    def start(self, loops: BackgroundLoops) -> None:
        """Copy the master's tables periodically."""
        period_ms = self._state.settings[ha_keys.TABLE_SYNC_MS]
        loops.every(
            "copy of the master's tables",
            lambda: period_ms if self._copied_from and self._copied_from == self.master_address else _SOON_MS,
            self._copy_periodically,
        )

    async def _copy_periodically(self) -> None:
        self.master_address = master = self._find_master()
        if not master:
            self._copied_from = ""
            return
        try:
            is_copied = await self._copy_from(master)
        except (RemotingError, RequestRefused, FormatError) as error:
            self._report_failure(master, error)
            return
        self._reported = ""
        if is_copied:
            if self._copied_from != master:
                await self._tables.save_all()
                log.info("copied the tables of master %s", master)
            self._copied_from = master

    async def _copy_from(self, master: str) -> bool:
        """Copy definitions, then progress if this log has what it refers to; return whether it does.

        Progress is read before the end of the master's log: a delivered message that this member lacks would otherwise
        count as delivered after it was elected.
        """
        await self._tables.copy_definitions(master)
        progress = await self._tables.fetch_progress(master)
        log_end = await self._log_end(master)
        for _ in range(_CONFIRM_TRIES):
            if self._find_master() != master:
                return False
            if self._driver.member.log.confirmed_to >= log_end:
                await self._tables.take_progress(progress)
                return True
            await asyncio.sleep(_CONFIRM_PAUSE_S)
        return False

    async def _log_end(self, master: str) -> int:
        answer = await self._client.invoke(master, Command(RequestCode.GET_BROKER_HA_STATUS), _ASK_S)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark or f"code {answer.code}")
        return decode_master_log_end(answer.body)
