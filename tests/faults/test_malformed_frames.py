"""Fifty thousand malformed frames over real sockets: each ends as an answer or a closed connection; nothing stays."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import Iterator

import pytest
import uvloop

from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.server import RemotingServer
from orbitlog.wire.command import Command, Serialization, encode_command, response_to

FRAMES = 50_000
AT_ONCE = 16
HANGS_AFTER_SECONDS = 240
SEED = 20240607

SEND = Command(310, 1, ext_fields={"a": "group", "b": "topic", "e": "0", "i": "KEYS\x01k\x02"}, body=b"body" * 8)
WHOLE = [
    encode_command(SEND),
    encode_command(Command(11, 2, ext_fields={"topic": "T"}, serialization=Serialization.BINARY)),
]


def damaged_frames(chance: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        frame = bytearray(chance.choice(WHOLE))
        kind = chance.randrange(4)
        if kind == 0:
            frame[chance.randrange(8)] = chance.randrange(256)  # a length or the serialization
        elif kind == 1:
            del frame[chance.randrange(1, len(frame)) :]
        elif kind == 2:
            frame = bytearray(chance.randbytes(chance.randrange(1, 200)))
        else:
            for _ in range(3):
                frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        yield bytes(frame)


class Attacker(asyncio.Protocol):
    """Sends one frame, closes its half, and waits for the end."""

    def __init__(self, frame: bytes, ended: asyncio.Future[None]) -> None:
        self._frame = frame
        self._ended = ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self._frame)  # type: ignore[attr-defined]
        transport.write_eof()  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set_result(None)


@pytest.mark.slow
def test_fifty_thousand_malformed_frames(caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    def echo(_: Connection, request: Command) -> Answer:
        nonlocal asked
        asked += 1
        return response_to(request, 0, ext_fields=request.ext_fields, body=request.body)

    async def attack(server: RemotingServer, frames: Iterator[bytes]) -> None:
        loop = asyncio.get_running_loop()
        for frame in frames:
            ended: asyncio.Future[None] = loop.create_future()
            await loop.create_connection(lambda frame=frame, ended=ended: Attacker(frame, ended), *server.address)
            await ended

    async def test() -> None:
        server = RemotingServer(echo)
        await server.start()
        frames = damaged_frames(random.Random(SEED), FRAMES)
        attacks = [attack(server, frames) for _ in range(AT_ONCE)]
        await asyncio.wait_for(asyncio.gather(*attacks), HANGS_AFTER_SECONDS)
        assert server.working_bytes == 0
        await server.stop()
        assert not server.connections

    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    uvloop.run(test())
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    assert 0 < asked < FRAMES
    assert len(caplog.records) < 50, "a flood of frames became a flood of lines"
    assert grown_kib < 64 * 1024, f"memory grew by {grown_kib} KiB"
