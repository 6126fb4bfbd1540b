"""Helpers of the socket tests: an event loop for each test, a server, a raw connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from orbitlog.remoting.connection import Handler
from orbitlog.remoting.flow import RemotingLimits
from orbitlog.remoting.server import RemotingServer
from orbitlog.remoting.tls.server_tls import ServerTls
from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frames import FrameDecoder

HANGS_AFTER_SECONDS = 60


def run(test: Coroutine[Any, Any, None], *, plain: bool = False) -> None:
    """Run a test on uvloop, or on asyncio's own loop; fail if it hangs."""
    limited = asyncio.wait_for(test, HANGS_AFTER_SECONDS)
    asyncio.run(limited) if plain else uvloop.run(limited)


@asynccontextmanager
async def serving(
    handler: Handler, limits: RemotingLimits | None = None, tls: ServerTls | None = None
) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(handler, limits=limits, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace_seconds=0.5)


async def until(is_so: Callable[[], object]) -> None:
    """Run the loop until a condition is true; the time limit of `run` applies."""
    while not is_so():  # noqa: ASYNC110 - the condition has no event
        await asyncio.sleep(0.001)


class RawClient:
    """A peer that sends arbitrary bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._read: list[Command] = []

    async def send(self, *parts: Command | bytes) -> None:
        self.writer.write(b"".join(part if isinstance(part, bytes) else encode_command(part) for part in parts))
        await self.writer.drain()

    async def answers(self, count: int) -> list[Command]:
        """Return the next responses in order of arrival."""
        while len(self._read) < count:
            data = await self.reader.read(65536)
            if not data:
                raise EOFError(f"closed after {len(self._read)} of {count} answers")
            self._read += self._decoder.receive_data(data)
        taken, self._read = self._read[:count], self._read[count:]
        return taken

    async def is_closed(self) -> bool:
        """Wait for the end of the stream and discard what arrives before it."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass
        return True


@asynccontextmanager
async def raw_client(server: RemotingServer) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(*server.address)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass
