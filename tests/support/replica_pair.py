"""A name server, a master and slaves of it, all in one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from tests.support.broker_desk import Desk, desk_at, until

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "syncBrokerMetadataPeriod": "500", "haSendHeartbeatInterval": "100"}


class Pair:
    """A name server, and a master that is running."""

    def __init__(self, root: Path, name_server: str, master: Desk) -> None:
        self.root = root
        self.name_server = name_server
        self.master = master

    @asynccontextmanager
    async def slave(self, **settings: str) -> AsyncIterator[Desk]:
        async with desk_at(self.root / "slave", namesrvAddr=self.name_server, **{**SLAVE, **settings}) as desk:
            yield desk

    async def copied(self, slave: Desk) -> None:
        """Wait until the slave has the master's log, dispatched."""
        store, copy = self.master.broker.state.store, slave.broker.state.store
        await until(lambda: copy.received_to == store.written_to and copy.dispatched_to == copy.written_to)


@asynccontextmanager
async def pair_at(root: Path, **settings: str) -> AsyncIterator[Pair]:
    server = NameServer(NameServerSettings(listen_port=0))
    await server.start()
    try:
        name_server = f"127.0.0.1:{server.address[1]}"
        async with desk_at(root / "master", namesrvAddr=name_server, **settings) as master:
            yield Pair(root, name_server, master)
    finally:
        await server.stop()


def run_pair(root: Path, work: Callable[[Pair], Awaitable[None]], **settings: str) -> None:
    async def go() -> None:
        async with pair_at(root, **settings) as pair:
            await work(pair)

    uvloop.run(go())
