"""Master link: keeps a slave connected to its master, with a pause that grows while that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from orbitlog.errors import RemotingError, ReplicaMismatch
from orbitlog.remoting.client import split_address
from orbitlog.replication.master_connection import MasterConnection, MasterLimits, ReplicaStore

log = logging.getLogger(__name__)

_CONNECT_S = 5.0
_TICK_S = 1.0
_PAUSE_MIN_S = 0.2
_PAUSE_MAX_S = 5.0


class LinkStatus(NamedTuple):
    """A slave's view of its connection, for `haStatus`; the times are those of the event loop."""

    master: str
    is_connected: bool
    read_s: float = 0
    written_s: float = 0
    bytes_per_second: int = 0
    problem: str = ""


class MasterLink:
    """The connection of one slave. `run_once` follows the master until the connection ends; call it in a loop.

    `prepare` is awaited before each connection. It raises `ReplicaMismatch` if the stores do not fit, and returns the
    offset from which an empty store must be sent, or None for any.
    """

    def __init__(
        self,
        store: ReplicaStore,
        limits: MasterLimits,
        appended: Callable[[], None],
        prepare: Callable[[], Awaitable[int | None]],
    ) -> None:
        self._store = store
        self._limits = limits
        self._appended = appended
        self._prepare = prepare
        self._address = ""
        self._address_changed = asyncio.Event()
        self._connection: MasterConnection | None = None
        self._pause_s = _PAUSE_MIN_S
        self._problem = ""

    @property
    def status(self) -> LinkStatus:
        connection = self._connection
        if connection is None:
            return LinkStatus(self._address, is_connected=False, problem=self._problem)
        return LinkStatus(
            self._address, True, connection.read_s, connection.written_s, connection.bytes_per_second, self._problem
        )

    def follow(self, address: str) -> None:
        """Connect to this HA address, now and after each lost connection; an open one to another address is closed."""
        if address == self._address:
            return
        log.info("following the master at %s", address)
        self._address = address
        self._pause_s = _PAUSE_MIN_S
        self._address_changed.set()
        if self._connection is not None:
            self._connection.close("the master has another address")

    async def run_once(self) -> None:
        """Connect, follow until the connection ends, and pause."""
        if not self._address:
            await self._address_changed.wait()
        self._address_changed.clear()
        try:
            reason, is_refused = await self._follow_once()
        except ReplicaMismatch as error:
            reason, is_refused = str(error), True
        except (OSError, TimeoutError, RemotingError) as error:
            reason, is_refused = str(error) or "timed out", False
        self._note(reason, is_refused=is_refused)
        await self._wait()

    async def _follow_once(self) -> tuple[str, bool]:
        """Follow the master until the connection ends; return why it did, and whether the stores do not fit."""
        # The rest of an incomplete record may be that of another one: this master may have lost its last bytes.
        self._store.drop_incomplete()
        first_offset = await self._prepare()
        host, port = split_address(self._address)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: MasterConnection(self._store, self._limits, self._appended, first_offset), host, port
            )
        self._connection = connection
        log.info("connected to master %s; the log ends at %d", self._address, self._store.received_to)
        received_before = self._store.received_to
        try:
            while not connection.closed.done():
                await asyncio.wait({connection.closed}, timeout=_TICK_S)
                connection.tick(loop.time())
                if self._store.received_to > received_before:
                    self._problem, self._pause_s = "", _PAUSE_MIN_S
        finally:
            self._connection = None
            connection.close("shutdown")
        return connection.closed.result(), connection.is_refused

    def _note(self, reason: str, *, is_refused: bool) -> None:
        """Log why the slave does not follow, once for each reason."""
        if is_refused:
            self._pause_s = _PAUSE_MAX_S
        if reason != self._problem:
            # A lost master is a condition of the broker, which logs its begin and its end.
            level = logging.ERROR if is_refused else logging.INFO
            log.log(level, "not following master %s, retrying: %s", self._address, reason)
        self._problem = reason

    async def _wait(self) -> None:
        """Pause before the next attempt, shorter if the address changes."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, _PAUSE_MAX_S)
        try:
            async with asyncio.timeout(pause_s):
                await self._address_changed.wait()
        except TimeoutError:
            pass
