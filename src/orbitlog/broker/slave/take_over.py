"""Take-over: makes the store of a mirror the master of its name.

A planned take-over loses nothing: the master refuses sends, the rest of its log and its tables are copied, and the copy
is served when the master has stopped. If the master is lost, the copy is served as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from orbitlog.broker.slave.fit_check import log_range
from orbitlog.broker.slave.master_search import MASTER_ID, registered_brokers
from orbitlog.broker.slave.mirror import Mirror
from orbitlog.broker.slave.send_stop import SendStop
from orbitlog.errors import OrbitlogError, RemotingError

_POLL_S = 0.2
_STABLE_POLLS = 8
_QUIET_S = 60.0
_GONE_POLLS = 5
_MARGIN_S = 60.0
_LOST_POLLS = 3


class TakeOver:
    """One take-over; `report` gets each step as the name of an event and a sentence."""

    def __init__(self, mirror: Mirror, report: Callable[[str, str], None]) -> None:
        self._mirror = mirror
        self._report = report

    async def run(self, stop_timeout_s: float) -> None:
        """Take over from a master that responds.

        Raise an `OrbitlogError` if it does not stop sends, or is not stopped in time; it then serves as before.
        """
        mirror = self._mirror
        self._report("copying", "copying the log of the master")
        while not (await mirror.progress()).is_near:  # noqa: ASYNC110 - the master has no event for it
            await asyncio.sleep(_POLL_S)
        assert mirror.master is not None
        master = mirror.master.address
        sends, is_stopped = SendStop(mirror.client, master), False
        try:
            await sends.stop(time.time_ns() // 1_000_000 + int((stop_timeout_s + _QUIET_S + _MARGIN_S) * 1000))
            self._report("sends-stopped", f"master {master} refuses sends; copying the rest")
            end = await self._quiet_end()
            await mirror.copy_tables()
            self._report("stop-master", f"everything up to offset {end} is copied; stop master {master} now")
            end = await self._stopped_end(master, end, stop_timeout_s)
            is_stopped = True
        finally:
            if not is_stopped:
                await sends.undo()  # also if the command is interrupted
        copied_to = mirror.broker.state.store.written_to
        if copied_to < end:
            raise OrbitlogError(
                f"the master stopped at offset {end}, but the copy ends at {copied_to}: start the master, then repeat"
                " the take-over; nothing was changed here"
            )
        await self._promote()

    async def run_after_loss(self) -> None:
        """Take over from a master that is lost; raise an `OrbitlogError` if one is registered or responds."""
        for _ in range(_LOST_POLLS):
            master = await self._registered() or await self._responding()
            if master:
                raise OrbitlogError(
                    f"master {master} is not lost: stop it first, or take over without --master-lost, which loses"
                    " nothing"
                )
            await asyncio.sleep(_POLL_S)
        await self._promote()

    async def _quiet_end(self) -> int:
        """Wait until the log of the master does not grow and is copied; return its end."""
        deadline_s, stable_polls, end = time.monotonic() + _QUIET_S, 0, -1
        while stable_polls < _STABLE_POLLS:
            if time.monotonic() > deadline_s:
                raise OrbitlogError(
                    f"the log of the master still grows {_QUIET_S:g} s after sends were stopped, by scheduled messages"
                    " or retries; repeat the take-over later"
                )
            await asyncio.sleep(_POLL_S)
            progress = await self._mirror.progress()
            is_stable = progress.master_end == end and self._mirror.broker.state.store.written_to == end
            stable_polls = stable_polls + 1 if is_stable else 0
            end = progress.master_end
        return end

    async def _stopped_end(self, master: str, end: int, timeout_s: float) -> int:
        """Wait until the master neither responds nor is registered; return the last end of its log."""
        deadline_s, failed_polls = time.monotonic() + timeout_s, 0
        while failed_polls < _GONE_POLLS or await self._registered() == master:
            if time.monotonic() > deadline_s:
                raise OrbitlogError(f"master {master} was not stopped within {timeout_s:g} s; it accepts sends")
            await asyncio.sleep(_POLL_S)
            try:
                end = max(end, (await log_range(self._mirror.client, master))[1])
                failed_polls = 0
            except RemotingError:
                failed_polls += 1
        if other := await self._registered():
            raise OrbitlogError(f"{other} is registered as the master of {self._mirror.target.broker_name} already")
        return end

    async def _registered(self) -> str:
        """Return the address of the registered master; empty without one."""
        target = self._mirror.target
        data = (await registered_brokers(self._mirror.client, target.name_servers)).get(target.broker_name)
        return "" if data is None else data.addresses.get(MASTER_ID, "")

    async def _responding(self) -> str:
        """Return the address of the last known master if it responds."""
        master = self._mirror.master
        if master is None:
            return ""
        try:
            await log_range(self._mirror.client, master.address)
        except RemotingError:
            return ""
        return master.address

    async def _promote(self) -> None:
        mirror = self._mirror
        written_to = mirror.broker.state.store.written_to
        await mirror.stop_broker()
        await mirror.serve_as_master()
        name = mirror.target.broker_name
        self._report("took-over", f"this broker is the master of {name}; it continues at offset {written_to}")
