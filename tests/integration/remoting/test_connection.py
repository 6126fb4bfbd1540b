"""Connections: what stays in memory after their end."""

from __future__ import annotations

import asyncio
import gc
import weakref

from orbitlog.remoting.connection import Connection
from orbitlog.remoting.server import RemotingServer
from orbitlog.wire.command import Command


def test_connection_is_freed_without_garbage_collection_when_it_ends() -> None:
    ended: list[weakref.ref[Connection]] = []

    async def work() -> None:
        def handle(connection: Connection, request: Command) -> Command:
            return Command(code=0, opaque=request.opaque)

        server = RemotingServer(handle, host="127.0.0.1", port=0)
        await server.start()
        opened = server._flow.opened

        def note(connection: Connection) -> None:
            ended.append(weakref.ref(connection))
            opened(connection)

        server._flow.opened = note  # type: ignore[method-assign]
        for _ in range(3):
            _, writer = await asyncio.open_connection(*server.address)
            writer.close()
            await writer.wait_closed()
        while len(ended) < 3 or any(reference() is not None for reference in ended):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await server.stop()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(asyncio.wait_for(work(), 10))
    finally:
        gc.enable()
    assert len(ended) == 3
