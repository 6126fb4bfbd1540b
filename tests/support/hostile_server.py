"""A hostile server: answers every request of a client with what the test chooses."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from tests.support.raw_peer import framed

Choose = Callable[[int], tuple[int, dict[str, str], bytes]]
"""Returns code, fields and body of the response to a request code."""


@asynccontextmanager
async def hostile_server(choose: Choose) -> AsyncIterator[str]:
    """Yield the address of the server."""

    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                total, mark = struct.unpack(">II", await reader.readexactly(8))
                content = await reader.readexactly(total - 4)
                request: dict[str, Any] = orjson.loads(content[: mark & 0xFFFFFF])
                code, fields, body = choose(request["code"])
                header = {"code": code, "opaque": request["opaque"], "flag": 1, "extFields": fields}
                writer.write(framed(orjson.dumps(header), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.sleep(0)
