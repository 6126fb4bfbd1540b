"""TLS: handshakes that flood, stop half-way or carry nothing cost little, and others are served."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.flow import RemotingLimits
from orbitlog.remoting.memory_budget import MemoryLimits
from orbitlog.remoting.server import RemotingServer
from orbitlog.remoting.tls.handshake_turns import TURN_SECONDS, HandshakeTurns
from orbitlog.remoting.tls.record_lengths import MANY_RECORDS, RecordLengths
from orbitlog.remoting.tls.tls_session import TlsSession
from orbitlog.remoting.tls.tls_transport import HANDSHAKE_BYTES_MAX
from orbitlog.settings.limits import MEMORY_PER_CONNECTION, TLS_HANDSHAKES_PER_ADDRESS, Limits
from orbitlog.wire.command import Command, encode_command, response_to
from tests.support.certificates import server_tls, trusting
from tests.support.loops import RawClient, run, until

MIB = 1024 * 1024


def echo(_: Connection, request: Command) -> Answer:
    return response_to(request, 0)


@asynccontextmanager
async def tls_server(
    counters: Limits | None = None, limits: RemotingLimits | None = None
) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(echo, limits=limits, counters=counters, tls=server_tls())
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace_seconds=0.5)


@asynccontextmanager
async def peer_of(server: RemotingServer, source: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(*server.address, local_addr=(source, 0))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


def client_session() -> tuple[TlsSession, bytes]:
    """Return the session of a client, and its first message."""
    session = TlsSession(trusting(), server_side=False, host="127.0.0.1")
    session.start()
    return session, session.take_output()


async def shake_hands(peer: RawClient) -> TlsSession:
    session, hello = client_session()
    await peer.send(hello)
    while not session.is_established:
        session.receive(await peer.reader.read(65536))
        await peer.send(session.take_output())
    return session


async def is_served(server: RemotingServer, source: str = "127.0.0.1") -> bool:
    async with peer_of(server, source) as peer:
        session = await shake_hands(peer)
        await peer.send(session.encrypt(encode_command(Command(1, 7))))
        while not (plain := session.receive(await peer.reader.read(65536))):
            pass
        return b'"opaque":7' in plain


def begun_hello(size: int) -> bytes:
    """Return the first bytes of a ClientHello that states 100,000 bytes."""
    body = b"\x01" + (100_000).to_bytes(3) + bytes(size)
    parts = [body[first : first + 16_000] for first in range(0, len(body), 16_000)]
    return b"".join(b"\x16\x03\x01" + len(part).to_bytes(2) + part for part in parts)


def test_unfinished_handshakes_of_one_address_are_limited() -> None:
    async def test() -> None:
        counters = Limits({TLS_HANDSHAKES_PER_ADDRESS.key: 3})
        async with tls_server(counters) as server:
            _, hello = client_session()
            async with (
                peer_of(server) as one,
                peer_of(server) as two,
                peer_of(server) as three,
                peer_of(server) as four,
            ):
                for peer in (one, two, three):
                    await peer.send(hello)
                    assert await peer.reader.read(1), "the handshake has begun"
                await four.send(hello)
                assert await four.is_closed()
                assert counters.reached[TLS_HANDSHAKES_PER_ADDRESS.key] == 1
                assert await is_served(server, "127.0.0.2"), "others are not affected"
            await until(lambda: not server.connections)
            assert await is_served(server), "the places are free after the ends of the connections"

    run(test())


def test_finished_handshakes_do_not_count() -> None:
    async def test() -> None:
        counters = Limits({TLS_HANDSHAKES_PER_ADDRESS.key: 1})
        async with tls_server(counters) as server, peer_of(server) as one:
            await shake_hands(one)
            assert await is_served(server) and await is_served(server)
            assert not counters.reached[TLS_HANDSHAKES_PER_ADDRESS.key]

    run(test())


def test_handshake_that_stops_half_way_is_closed() -> None:
    async def test() -> None:
        async with tls_server(limits=RemotingLimits(first_frame_seconds=0.2)) as server:
            async with peer_of(server) as silent, peer_of(server) as begun, peer_of(server) as idle:
                await silent.send(b"\x16")
                await begun.send(client_session()[1])
                await shake_hands(idle)
                for peer in (silent, begun, idle):
                    assert await peer.is_closed()

    run(test())


def test_unfinished_handshakes_and_records_count_in_the_memory_budget() -> None:
    async def test() -> None:
        async with tls_server() as server:
            budget = server._flow.memory
            async with peer_of(server) as peer:
                await peer.send(begun_hello(50_000))
                await until(lambda: budget.bytes >= 50_000)
            await until(lambda: budget.bytes == 0)
            async with peer_of(server) as peer:
                session = await shake_hands(peer)
                record = session.encrypt(encode_command(Command(1, body=bytes(12_000))))
                await peer.send(record[:10_000])
                await until(lambda: budget.bytes == 10_000)
                await peer.send(record[10_000:])
                while not session.receive(await peer.reader.read(65536)):  # session tickets come first
                    pass
                assert not budget.bytes

    run(test())


def test_connection_whose_handshake_exceeds_its_share_is_closed() -> None:
    async def test() -> None:
        counters = Limits()
        memory = MemoryLimits(total=MIB, per_address=MIB, per_connection=64 * 1024)
        async with tls_server(counters, RemotingLimits(memory=memory)) as server, peer_of(server) as peer:
            await peer.send(begun_hello(90_000))
            assert await peer.is_closed()
            assert counters.reached[MEMORY_PER_CONNECTION.key] == 1
            assert await is_served(server)

    run(test())


def test_handshake_without_end_is_not_read_further_and_is_closed_in_its_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Bytes that wait for a turn are not given to OpenSSL, which has limits of its own."""

    async def test() -> None:
        async with tls_server() as server, peer_of(server) as peer:
            await shake_hands(peer)
            turns = server._tls.turns  # type: ignore[union-attr]
            assert turns is not None
            turns._next_s = float("inf")  # no turn comes
            memory = server._flow.memory
            before_bytes = memory.bytes
            async with peer_of(server) as endless:
                await endless.send(begun_hello(4 * HANDSHAKE_BYTES_MAX))
                await until(lambda: memory.bytes - before_bytes > HANDSHAKE_BYTES_MAX)
                await asyncio.sleep(0.1)
                assert memory.bytes - before_bytes < 2 * HANDSHAKE_BYTES_MAX
                turns._next_s = 0.0
                turns._turn()
                assert await endless.is_closed()

    run(test())
    assert "closing 127.0.0.1:" in caplog.text


def test_very_many_records_without_content_are_refused_before_they_are_decrypted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with tls_server() as server:
            async with peer_of(server) as peer:
                session = await shake_hands(peer)
                await peer.send(b"".join(session.encrypt(b"x") for _ in range(4 * MANY_RECORDS)))
                assert await peer.is_closed()
            async with peer_of(server) as honest:
                session = await shake_hands(honest)
                count = 2 * MANY_RECORDS
                await honest.send(b"".join(session.encrypt(encode_command(Command(1, 7))) for _ in range(count)))
                received = b""
                while received.count(b'"opaque":7') < count:
                    received += session.receive(await honest.reader.read(65536))

    with caplog.at_level(logging.WARNING):
        run(test())
    assert "very many records without content" in caplog.text


def test_renegotiation_is_refused() -> None:
    async def test() -> None:
        async with tls_server() as server:
            host, port = server.address
            words = ("openssl", "s_client", "-tls1_2", "-connect", f"{host}:{port}")
            done = await asyncio.to_thread(
                subprocess.run, words, input=b"R\n", capture_output=True, timeout=30, check=False
            )
            assert b"RENEGOTIATING" in done.stdout + done.stderr
            assert b"no renegotiation" in done.stdout + done.stderr
            assert await is_served(server)

    run(test())


class Clock:
    """Time that passes only when a step spends it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_addresses_take_turns_and_others_are_served_in_between() -> None:
    async def test() -> None:
        clock, done = Clock(), list[str]()
        turns = HandshakeTurns(Limits(), clock)

        def step(name: str) -> None:
            done.append(name)
            clock.now_s += TURN_SECONDS / 4

        turns.take("a", lambda: step("first"))
        assert done == ["first"], "without a wait if none went before it"
        for number in range(8):
            turns.take("a", lambda number=number: step(f"a{number}"))  # type: ignore[misc]
        for number in range(2):
            turns.take("b", lambda number=number: step(f"b{number}"))  # type: ignore[misc]
        assert turns.waiting_count == 10 and len(done) == 1
        turns._turn()
        assert done[1:] == ["a0", "b0", "a1", "b1"], "a turn is over after its time"
        assert turns._next_s == clock.now_s + TURN_SECONDS, "the others get as much"
        while turns.waiting_count:
            turns._turn()
        assert done[-1] == "a7"

    asyncio.run(test())


def test_step_that_fails_does_not_stop_the_turns() -> None:
    async def test() -> None:
        turns, done = HandshakeTurns(Limits()), list[int]()

        def fail() -> None:
            raise ssl.SSLError("broken")

        turns._next_s = float("inf")
        turns.take("a", fail)
        turns.take("a", lambda: done.append(1))
        turns._next_s = 0.0
        with pytest.raises(ssl.SSLError):
            turns._turn()
        turns._plan()
        await until(lambda: done)

    asyncio.run(test())


@pytest.mark.parametrize("sizes", [[1] * 100, [7, 60], [100], [3, 4, 93], [5, 95], [60, 40]])
def test_kept_bytes_of_records_are_exact_however_they_are_cut(sizes: list[int]) -> None:
    data = b"\x17\x03\x03" + (45).to_bytes(2) + bytes(45) + b"\x17\x03\x03" + (45).to_bytes(2) + bytes(45)
    lengths, position = RecordLengths(), 0
    for size in sizes:
        assert lengths.receive(data[position : position + size])
        position += size
        assert lengths.kept_bytes == position % 50


def test_port_that_is_given_noise_closes_the_connection() -> None:
    async def test() -> None:
        async with tls_server() as server:
            for noise in (b"\x16" + bytes(100), b"\x16\x03\x01\xff\xff" + bytes(70_000), b"GET / HTTP/1.1\r\n\r\n"):
                async with peer_of(server) as peer:
                    try:
                        await peer.send(noise)
                        peer.writer.write_eof()
                    except OSError:
                        pass
                    assert await peer.is_closed()
            assert await is_served(server)

    run(test())
