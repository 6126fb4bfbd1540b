"""What the socket tests share: a loop of its own for each test, a server, a raw connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from orbitlog.remoting.connection import Handler
from orbitlog.remoting.flow import RemotingLimits
from orbitlog.remoting.server import RemotingServer
from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frames import FrameDecoder

HANGS_AFTER_SECONDS = 60


def run(test: Coroutine[Any, Any, None], *, plain: bool = False) -> None:
    """Run a test on uvloop, or on asyncio's own loop; a hang is a failure."""
    limited = asyncio.wait_for(test, HANGS_AFTER_SECONDS)
    asyncio.run(limited) if plain else uvloop.run(limited)


@asynccontextmanager
async def serving(handler: Handler, limits: RemotingLimits | None = None) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(handler, limits=limits)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace_seconds=0.5)


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop run until something is so; the time limit of `run` is the limit."""
    while not is_so():  # noqa: ASYNC110 - what it waits for sets no event
        await asyncio.sleep(0.001)


class RawClient:
    """A peer that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._read: list[Command] = []

    async def send(self, *parts: Command | bytes) -> None:
        self.writer.write(b"".join(part if isinstance(part, bytes) else encode_command(part) for part in parts))
        await self.writer.drain()

    async def answers(self, count: int) -> list[Command]:
        """The next answers, in the order in which they come."""
        while len(self._read) < count:
            data = await self.reader.read(65536)
            if not data:
                raise EOFError(f"closed after {len(self._read)} of {count} answers")
            self._read += self._decoder.receive_data(data)
        taken, self._read = self._read[:count], self._read[count:]
        return taken

    async def is_closed(self) -> bool:
        """Wait for the end; whatever comes before it is thrown away."""
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
