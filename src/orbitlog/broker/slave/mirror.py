"""Mirror: a broker that follows a live master without counting as a copy.

It is a slave that is not registered and acknowledges nothing (`haObserver`): clients and sends of the master do not
notice it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from orbitlog.access.access_settings import INNER_CREDENTIALS
from orbitlog.broker.runtime import broker_settings as keys
from orbitlog.broker.runtime import replication_settings as ha_keys
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.slave.fit_check import log_range, master_settings
from orbitlog.broker.slave.master_search import FoundMaster, find_master
from orbitlog.errors import FormatError, RemotingError
from orbitlog.formats import store_tree as tree
from orbitlog.remoting.client import RemotingClient
from orbitlog.settings import store_settings
from orbitlog.settings.tls_settings import check_tls
from orbitlog.store.dispatch.arrival import Progress
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.list_bodies import KvTable
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.nameserver_headers import RegisterBrokerResponse

log = logging.getLogger(__name__)

_SEARCH_S = 2.0
_SECONDS = 3.0
_NEAR_BYTES = 1 << 20
_GEOMETRY = (
    store_settings.SEGMENT_BYTES,
    store_settings.QUEUE_FILE_BYTES,
    store_settings.SLOT_COUNT,
    store_settings.ENTRY_COUNT,
)
_RULES = (store_settings.DELAY_LEVELS, store_settings.MULTI_DISPATCH, store_settings.LMQ)


class MirrorTarget(NamedTuple):
    """The broker to follow."""

    name_servers: tuple[str, ...]
    broker_name: str

    @property
    def texts(self) -> Mapping[str, str]:
        """The settings of a mirror: a slave that is not registered and acknowledges nothing."""
        return {
            keys.BROKER_NAME.key: self.broker_name,
            keys.NAME_SERVERS.key: "",
            keys.BROKER_ID.key: "1",
            ha_keys.BROKER_ROLE.key: ha_keys.SLAVE,
            ha_keys.OBSERVER.key: "true",
        }


class MirrorProgress(NamedTuple):
    """How much of the master's log is copied."""

    copied_to: int
    master_end: int

    @property
    def lag_bytes(self) -> int:
        return max(self.master_end - self.copied_to, 0)

    @property
    def is_near(self) -> bool:
        """Return whether the copy follows the end of the log, rather than that it catches up."""
        return self.lag_bytes <= _NEAR_BYTES and (self.copied_to > 0 or self.master_end == 0)


class Mirror:
    """Follows one master, from `start` to `stop`."""

    def __init__(
        self, settings: BrokerSettings, root: Path, target: MirrorTarget, *, progress: Progress | None = None
    ) -> None:
        self.settings = settings
        self.root = root
        self.target = target
        self.client = make_client(settings)
        self.master: FoundMaster | None = None
        """The master; None until one was found."""
        self._recovery = progress
        self._broker: Broker | None = None
        self._following: asyncio.Task[None] | None = None
        self._problem = ""

    @property
    def broker(self) -> Broker:
        """The broker that serves the copy; the mirror must have been started."""
        assert self._broker is not None
        return self._broker

    async def start(self) -> None:
        """Open the store and follow the master; return when the copy is served.

        Raise a `RemotingError` if the store is new and no master is found: its file sizes are those of the master.
        """
        is_new = not (self.root / tree.COMMITLOG).exists()
        texts: Mapping[str, str] = {}
        try:
            self.master = await self._find()
            texts = await self._master_texts(self.master, is_new=is_new)
        except RemotingError as error:
            if is_new:
                raise
            self._note(str(error))
        self.settings = self.settings.with_texts({k: text for k, text in texts.items() if k not in self.settings.texts})
        self._broker = Broker(self.settings, self.root, progress=self._recovery)
        await self._broker.start()
        self._follow_found()
        self._following = asyncio.create_task(self._keep_following())

    async def stop(self) -> None:
        """Stop following and serving."""
        await self.stop_broker()
        await self.client.close()

    async def stop_broker(self) -> None:
        """Stop following, and close the store."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
            self._following = None
        if self._broker is not None:
            broker, self._broker = self._broker, None
            await broker.stop()

    async def serve_as_master(self) -> None:
        """Serve the store as the registered master of the name, after `stop_broker`."""
        assert self._broker is None
        texts = {
            ha_keys.BROKER_ROLE.key: "ASYNC_MASTER",
            keys.BROKER_ID.key: "0",
            ha_keys.OBSERVER.key: "false",
            keys.NAME_SERVERS.key: ";".join(self.target.name_servers),
        }
        self._broker = Broker(self.settings.with_texts(texts), self.root)
        await self._broker.start()

    async def progress(self) -> MirrorProgress:
        """Return how much is copied; raise `RemotingError` if the master does not respond."""
        if self.master is None:
            raise RemotingError(f"no master of {self.target.broker_name} was found")
        end = (await log_range(self.client, self.master.address))[1]
        return MirrorProgress(self.broker.state.store.received_to, end)

    async def copy_tables(self) -> None:
        """Copy the tables of the master now; raise `RemotingError` if it does not respond."""
        slave = self.broker.slave
        assert slave is not None, "a mirror is a slave until it takes over"
        await slave.copy_tables()

    async def _find(self) -> FoundMaster:
        return await find_master(self.client, self.target.name_servers, self.target.broker_name)

    def _follow_found(self) -> None:
        slave = self.broker.slave
        if self.master is not None and slave is not None:
            slave.found_master(
                RegisterBrokerResponse(ha_address=self.master.ha_address, master_address=self.master.address)
            )

    async def _keep_following(self) -> None:
        while True:
            await asyncio.sleep(_SEARCH_S)
            try:
                self.master = await self._find()
            except RemotingError as error:
                self._note(str(error))
            else:
                self._problem = ""
                self._follow_found()

    def _note(self, problem: str) -> None:
        """Log why the master is not found, once for each reason."""
        if problem != self._problem:
            log.warning("searching the master; the copy is served as it is: %s", problem)
        self._problem = problem

    async def _master_texts(self, master: FoundMaster, *, is_new: bool) -> dict[str, str]:
        """Return the settings of the master that its copy must have; the sizes of files only for a new store."""
        stated = await master_settings(self.client, master.address)
        wanted = (*_GEOMETRY, *_RULES) if is_new else _RULES
        texts = {setting.key: stated[setting.key] for setting in wanted if stated.get(setting.key)}
        if master.cluster:
            texts[keys.CLUSTER_NAME.key] = master.cluster
        if is_new:
            compat = stated.get(store_settings.COMPAT.key) or await self._compat(master)
            texts |= {store_settings.COMPAT.key: compat} if compat else {}
        return texts

    async def _compat(self, master: FoundMaster) -> str:
        answer = await self.client.invoke(master.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), _SECONDS)
        try:
            version = decode_body(KvTable, answer.body).table.get("brokerVersionDesc", "")
        except FormatError as error:
            raise RemotingError(f"master {master.address} does not state its version: {error}") from error
        return "4.9" if version.startswith("V4") else ""


def make_client(settings: BrokerSettings) -> RemotingClient:
    """Return a client with the credentials and the certificates that a broker uses for other brokers."""
    credentials, options = settings[INNER_CREDENTIALS], check_tls(settings.texts)
    sign = None if credentials is None else credentials.sign
    if options is None:
        return RemotingClient(sign=sign)
    from orbitlog.remoting.tls.tls_loading import load_client_tls

    return RemotingClient(sign=sign, tls=load_client_tls(options))
