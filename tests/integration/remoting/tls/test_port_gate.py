"""TLS over sockets: permissive and enforcing ports, limits, errors of both sides, reload under connections."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

import orbitlog
from orbitlog.errors import ConnectFailed, ConnectionLost, HandshakeFailed
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.flow import RemotingLimits
from orbitlog.remoting.server import RemotingServer
from orbitlog.remoting.tls.handshake_turns import HandshakeTurns
from orbitlog.remoting.tls.tls_session import TlsSession
from orbitlog.settings.tls_options import TlsFiles, TlsRules
from orbitlog.wire.command import Command, encode_command, response_to
from tests.support.certificates import (
    client_files,
    elsewhere_server_files,
    expired_server_files,
    server_files,
    server_tls,
    shared_ca,
    strange_client_files,
    trusting,
)
from tests.support.loops import raw_client, run, serving, until

LOOPS = pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])


def echo(_: Connection, request: Command) -> Answer:
    return response_to(request, 0, ext_fields=request.ext_fields, body=request.body)


async def ask(server: RemotingServer, tls: ssl.SSLContext | None, body: bytes = b"one") -> bytes:
    client = RemotingClient(tls=tls)
    try:
        host, port = server.address
        return (await client.invoke(f"{host}:{port}", Command(1, body=body), 10.0)).body
    finally:
        await client.close()


@LOOPS
def test_permissive_port_serves_both(plain: bool) -> None:
    async def test() -> None:
        async with serving(echo, tls=server_tls()) as server:
            for tls in (None, trusting()):
                large = bytes(4 * 1024 * 1024)
                assert await asyncio.gather(ask(server, tls), ask(server, tls, large)) == [b"one", large]
            await until(lambda: not server.connections)

    run(test(), plain=plain)


@LOOPS
def test_client_whose_handshake_waits_may_send_a_large_request(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client does not wait for the server after its last message of the handshake."""
    take = HandshakeTurns.take

    def take_later(turns: HandshakeTurns, address: str, step: Callable[[], None]) -> None:
        turns._next_s = turns._now_s() + 0.2
        take(turns, address, step)

    monkeypatch.setattr(HandshakeTurns, "take", take_later)

    async def test() -> None:
        async with serving(echo, tls=server_tls()) as server:
            large = bytes(4 * 1024 * 1024)
            assert await ask(server, trusting(), large) == large

    run(test(), plain=plain)


@LOOPS
def test_plain_connection_has_nothing_between_it_and_its_transport(plain: bool) -> None:
    async def test() -> None:
        async with serving(echo, tls=server_tls()) as server, raw_client(server) as client:
            await client.send(Command(1, 7))
            [answer] = await client.answers(1)
            [connection] = server.connections
            transport = connection._transport
            assert transport is not None
            assert answer.opaque == 7 and transport.get_protocol() is connection and not connection.is_secured

    run(test(), plain=plain)


@LOOPS
def test_enforcing_port_closes_plain_connections(plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(echo, tls=server_tls(mode="enforcing")) as server:
            with pytest.raises(ConnectionLost, match="if it serves TLS only, connect with TLS"):
                await ask(server, None)
            assert await ask(server, trusting()) == b"one"

    run(test(), plain=plain)
    [line] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.match(r"closing 127\.0\.0\.1:\d+: plain connection to a port that serves TLS only", line)


def test_port_without_tls_is_named_by_the_client(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(echo) as server:
            with pytest.raises(ConnectFailed, match=r"TLS handshake with .* failed: .*; the server may not serve TLS"):
                await ask(server, trusting())

    run(test())
    assert "the peer speaks TLS; this port serves plain connections only" in caplog.text


@pytest.mark.parametrize(
    ("files", "client_side", "server_side"),
    [
        (server_files, "the CA of the peer's certificate is not trusted", "it does not trust the CA"),
        (expired_server_files, "the certificate of the peer is expired", "it is expired"),
        (elsewhere_server_files, "is for another host: ip address mismatch", "rejected the certificate of this end"),
    ],
)
def test_wrong_certificate_is_named_on_both_sides(  # type: ignore[no-untyped-def]
    files, client_side: str, server_side: str, caplog: pytest.LogCaptureFixture
) -> None:
    trusts = ssl.create_default_context() if files is server_files else trusting()

    async def test() -> None:
        async with serving(echo, tls=server_tls(files())) as server:
            with pytest.raises(ConnectFailed, match=client_side):
                await ask(server, trusts)
            await until(lambda: caplog.records)

    run(test())
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("closing 127.0.0.1:") and server_side in line


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_mutual_tls_admits_its_ca_only(version: str, caplog: pytest.LogCaptureFixture) -> None:
    rules = TlsRules((version,))
    trust = server_files()._replace(trust=str(shared_ca().certificate))
    names: list[str] = []

    def named(connection: Connection, request: Command) -> Answer:
        names.append(connection.certificate_name)
        return echo(connection, request)

    async def test() -> None:
        tls = server_tls(trust, client_authentication="require", principal_from="subjectCN")
        async with serving(named, tls=tls) as server:
            assert await ask(server, trusting(client_files(), rules=rules)) == b"one"
            for files in (TlsFiles(), strange_client_files()):
                with pytest.raises((ConnectFailed, ConnectionLost), match="certificate"):
                    await ask(server, trusting(files, rules=rules))

    run(test())
    assert names == ["alice"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_reloaded_certificate_is_for_new_connections(tmp_path: Path) -> None:
    files = TlsFiles(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))

    def replace_by(source: TlsFiles) -> None:
        shutil.copy(source.certificate, files.certificate)
        shutil.copy(source.key, files.key)

    async def test() -> None:
        replace_by(server_files())
        tls = server_tls(files)
        async with serving(echo, tls=tls) as server:
            address = f"127.0.0.1:{server.address[1]}"
            first = RemotingClient(tls=trusting())
            await first.invoke(address, Command(1))
            replace_by(expired_server_files())
            assert tls.reload()
            with pytest.raises(ConnectFailed, match="is expired"):
                await ask(server, trusting())
            assert (await first.invoke(address, Command(1, body=b"still"))).body == b"still"
            await first.close()

    run(test())


@LOOPS
def test_unfinished_handshakes_count_in_every_limit(plain: bool) -> None:
    async def test() -> None:
        limits = RemotingLimits(first_frame_seconds=0.2, per_address=2)
        async with serving(echo, limits, tls=server_tls()) as server:
            async with raw_client(server) as silent, raw_client(server) as partial:
                await partial.send(b"\x16\x03\x01\x02\x00\x01")
                await until(lambda: len(server.connections) == 2)
                async with raw_client(server) as third:
                    assert await third.is_closed()
                assert await silent.is_closed() and await partial.is_closed()
            await until(lambda: not server.connections)

    run(test(), plain=plain)


@pytest.mark.parametrize(
    "garbage", [b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16GET / HTTP/1.1\r\n\r\n", b"\x16" * 99_999]
)
def test_garbage_after_the_first_byte_closes_the_connection(garbage: bytes) -> None:
    async def test() -> None:
        async with serving(echo, tls=server_tls()) as server:
            async with raw_client(server) as client:
                await client.send(garbage)
                client.writer.write_eof()
                assert await client.is_closed()
            assert await ask(server, trusting()) == b"one"

    run(test())


@LOOPS
def test_peer_that_ends_after_its_request_gets_the_answer(plain: bool) -> None:
    """A client may announce its end and wait: requests that are being handled are answered first."""

    async def test() -> None:
        release = asyncio.Event()

        async def late(_: Connection, request: Command) -> Answer:
            await release.wait()
            return response_to(request, 0, body=b"late")

        async with serving(late, tls=server_tls()) as server:
            answered = asyncio.get_running_loop().run_in_executor(None, _ask_and_end, server.address)
            await until(lambda: any(connection.unanswered for connection in server.connections))
            await asyncio.sleep(0.05)
            release.set()
            assert b"late" in await answered

    run(test(), plain=plain)


def _ask_and_end(address: tuple[str, int]) -> bytes:
    session = TlsSession(trusting(), server_side=False, host="127.0.0.1")
    with socket.create_connection(address, timeout=20) as peer:
        session.start()
        while not session.is_established:
            peer.sendall(session.take_output())
            session.receive(peer.recv(65536))
        peer.sendall(session.take_output() + session.encrypt(encode_command(Command(1, 5))) + session.end())
        received = b""
        while b"late" not in received and (data := peer.recv(65536)):
            received += session.receive(data)
        return received


def test_slow_reader_of_a_tls_connection_pauses_it() -> None:
    """Responses wait in the buffer of the transport below, whose limit pauses reading as for plain connections."""

    async def test() -> None:
        limits = RemotingLimits(write_buffer_bytes=64 * 1024)
        async with serving(echo, limits, tls=server_tls()) as server:
            client = RemotingClient(tls=trusting())
            connection = await client.connect(f"127.0.0.1:{server.address[1]}")
            transport = connection._transport
            assert transport is not None
            transport.pause_reading()
            body = bytes(1024 * 1024)
            asked = [asyncio.create_task(connection.request(Command(1, body=body), 30.0)) for _ in range(16)]
            [served] = server.connections
            await until(lambda: served.is_slow)
            assert not all(task.done() for task in asked)
            transport.resume_reading()
            assert [len(answer.body) for answer in await asyncio.gather(*asked)] == [len(body)] * 16
            await client.close()

    run(test())


def test_send_with_a_wrong_certificate_ends_after_few_attempts(caplog: pytest.LogCaptureFixture) -> None:
    """Certificates do not change while a send waits: it must not connect until its timeout."""

    async def test() -> None:
        async with serving(echo, tls=server_tls(expired_server_files())) as server:
            address = f"127.0.0.1:{server.address[1]}"
            async with orbitlog.connect(address, tls=trusting()) as mq:
                with pytest.raises(HandshakeFailed, match="is expired"):
                    await mq.send("Orders", "one")

    run(test())
    closed = [record for record in caplog.records if record.getMessage().startswith("closing ")]
    assert 1 <= len(closed) <= 6
