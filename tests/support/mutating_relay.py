"""A relay between a client and a server that mutates responses: fields, codes, values of JSON bodies, bytes."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from tests.support.raw_peer import framed

_TEXTS = (
    "",
    "-1",
    "9" * 30,
    "x" * 300,
    "\0",
    "NaN",
    "..",
    "2147483648",
    "-9223372036854775808",
    "a..b:1",
    "true",
    "{}",
)
_VALUES = (None, 1, -1, "x", [], {}, [None], {"1": None}, [[1]], -(2**63), 2**63 - 1, 1.5, "", "9" * 30, ["a"] * 50)
_CODES = (0, 1, 2, 3, 17, 19, 20, 21, 22, 24, 25, 26, 30, 209, -1, 99_999)
_BODIES = (b"", b"{}", b"[]", b"null", b"\0" * 64, b"{" * 100)


class MutatingRelay:
    """Forwards frames to one server; `renamed` replaces addresses in bodies, so that clients stay at relays."""

    def __init__(self, target: str, seed: int, share: float, renamed: Mapping[bytes, bytes]) -> None:
        self.target = target
        self.mutated = 0
        self._chance = random.Random(seed)
        self._share = share
        self._renamed = renamed

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        pumps = [
            asyncio.ensure_future(self._forward(reader, server_writer)),
            asyncio.ensure_future(self._mutate(server_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (server_writer, writer):
                end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def _mutate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            total, mark = struct.unpack(">II", await reader.readexactly(8))
            content = await reader.readexactly(total - 4)
            header_bytes = mark & 0xFFFFFF
            header, body = orjson.loads(content[:header_bytes]), content[header_bytes:]
            for old, new in self._renamed.items():
                body = body.replace(old, new)
            if header["flag"] & 1 and self._chance.random() < self._share:
                self.mutated += 1
                body = self._mutated(header, body)
            writer.write(framed(orjson.dumps(header), body))

    def _mutated(self, header: dict[str, Any], body: bytes) -> bytes:
        """Change the header in place, or return another body."""
        chance, fields = self._chance, header.get("extFields")
        kind = chance.randrange(6)
        if kind == 0:
            header["code"] = chance.choice(_CODES)
        elif kind == 1 and fields:
            name = chance.choice(list(fields))
            fields[name] = chance.choice(_TEXTS)
            if chance.random() < 0.3:
                del fields[name]
        elif kind in (2, 3) and body[:1] == b"{":
            return self._mutated_json(body)
        elif kind == 4 and body:
            changed = bytearray(body)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            return bytes(changed)
        elif body:
            return chance.choice((*_BODIES, body[: chance.randrange(len(body))], body + body))
        return body

    def _mutated_json(self, body: bytes) -> bytes:
        chance = self._chance
        try:
            whole = json.loads(body)
        except ValueError:  # a body in the loose form of old servers
            return b"[" + body
        places: list[tuple[Any, Any]] = []
        left = [whole]
        while left:
            holder = left.pop()
            entries = list(holder.items()) if isinstance(holder, dict) else list(enumerate(holder))
            places += [(holder, key) for key, _ in entries]
            left += [value for _, value in entries if isinstance(value, dict | list)]
        if places:
            holder, key = chance.choice(places)
            holder[key] = chance.choice(_VALUES)
            if chance.random() < 0.2:
                del holder[key]
        return json.dumps(whole).encode()


@asynccontextmanager
async def mutating_relay(
    target: str, seed: int, share: float, renamed: Mapping[bytes, bytes] | None = None
) -> AsyncIterator[tuple[MutatingRelay, str]]:
    """Yield a relay in front of `target`, and its address."""
    relay, open_ones = MutatingRelay(target, seed, share, renamed or {}), set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(relay.serve(reader, writer))
        open_ones.add(task)
        task.add_done_callback(open_ones.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield relay, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(open_ones):
            task.cancel()
        await asyncio.gather(*open_ones, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close in a later turn of the loop
