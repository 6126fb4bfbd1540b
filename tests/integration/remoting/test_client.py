from __future__ import annotations

import asyncio
import socket

import pytest

from orbitlog.errors import ConnectFailed, ConnectionLost, RemotingError, RequestTimeout
from orbitlog.remoting.client import RemotingClient, split_address
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.request_dispatch import Dispatch
from orbitlog.remoting.server import RemotingServer
from orbitlog.wire.command import Command, response_to
from tests.support.loops import run, serving, until


def echo(_: Connection, request: Command) -> Answer:
    return response_to(request, 0, body=request.body)


def address_of(server: RemotingServer) -> str:
    host, port = server.address
    return f"{host}:{port}"


def test_many_requests_share_one_connection() -> None:
    async def test() -> None:
        client = RemotingClient()
        async with serving(echo) as server:
            address = address_of(server)
            asked = [client.invoke(address, Command(1, body=b"%d" % number)) for number in range(100)]
            answers = await asyncio.gather(*asked)
            assert [answer.body for answer in answers] == [b"%d" % number for number in range(100)]
            assert len(server.connections) == 1
            await client.close()

    run(test())


def test_lost_connection_is_reopened() -> None:
    async def test() -> None:
        client = RemotingClient()

        def hang_up(connection: Connection, _: Command) -> Answer:
            connection.abort()
            return None

        async with serving(Dispatch({1: echo, 2: hang_up})) as server:
            address = address_of(server)
            with pytest.raises(ConnectionLost):
                await client.invoke(address, Command(2))
            assert (await client.invoke(address, Command(1))).code == 0
        await client.close()

    run(test())


def test_connection_is_dropped_only_if_its_peer_is_silent_and_owes_a_response() -> None:
    async def test() -> None:
        client = RemotingClient()
        async with serving(Dispatch({1: echo, 2: lambda *_: None})) as server:
            address = address_of(server)
            await client.invoke(address, Command(1))
            client.drop_silent(address, 0.0, "replaced")
            assert client.open_connection(address) is not None, "no response is due"
            waiting = asyncio.create_task(client.invoke(address, Command(2), 30))
            await until(lambda: client._connections[address].result().outgoing.is_waiting)
            client.drop_silent(address, 30.0, "replaced")
            assert client.open_connection(address) is not None, "the peer has answered a moment ago"
            client.drop_silent(address, 0.0, "replaced")
            with pytest.raises(ConnectionLost, match="replaced"):
                await waiting
            client.drop_silent(address, 0.0, "replaced")  # there is no connection
        await client.close()

    run(test())


def test_connect_without_a_listener_fails() -> None:
    async def test() -> None:
        client = RemotingClient()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for _ in range(2):
            with pytest.raises(ConnectFailed, match=f"could not connect to 127.0.0.1:{port}: Connection refused"):
                await client.invoke(f"127.0.0.1:{port}", Command(1))
        await client.close()

    run(test())


def test_restarted_server_is_reached() -> None:
    async def test() -> None:
        client = RemotingClient()
        first = RemotingServer(echo)
        await first.start()
        host, port = first.address
        assert (await client.invoke(f"{host}:{port}", Command(1))).code == 0
        await first.stop()
        with pytest.raises(RemotingError):
            await client.invoke(f"{host}:{port}", Command(1))
        second = RemotingServer(echo, port=port)
        await second.start()
        assert (await client.invoke(f"{host}:{port}", Command(1))).code == 0
        await client.close()
        await second.stop()

    run(test())


def test_request_without_response_times_out() -> None:
    async def test() -> None:
        client = RemotingClient()
        async with serving(lambda *_: None) as server:
            with pytest.raises(RequestTimeout):
                await client.invoke(address_of(server), Command(1), timeout=0.05)
            await client.close()

    run(test())


def test_client_serves_requests_of_the_server() -> None:
    async def test() -> None:
        def asks_back(connection: Connection, request: Command) -> object:
            async def answer() -> Command:
                answers = [await connection.request(Command(code), timeout=5) for code in (220, 221)]
                return response_to(request, 0, body=b",".join(b"%d" % answer.code for answer in answers))

            return answer()

        serves = RemotingClient(lambda _, request: response_to(request, 5))
        refuses = RemotingClient()
        async with serving(asks_back) as server:  # type: ignore[arg-type]
            assert (await serves.invoke(address_of(server), Command(1))).body == b"5,5"
            assert (await refuses.invoke(address_of(server), Command(1))).body == b"3,3"
            await serves.close()
            await refuses.close()

    run(test())


def test_one_way() -> None:
    async def test() -> None:
        heard = asyncio.Event()

        def hear(_: Connection, request: Command) -> Answer:
            assert request.is_oneway
            heard.set()
            return response_to(request, 0)

        client = RemotingClient()
        async with serving(hear) as server:
            await client.invoke_oneway(address_of(server), Command(15))
            await heard.wait()
            await client.close()

    run(test())


def test_close_ends_every_pending_request() -> None:
    async def test() -> None:
        client = RemotingClient()
        async with serving(lambda *_: None) as server:
            asking = [asyncio.create_task(client.invoke(address_of(server), Command(1), timeout=30)) for _ in range(3)]
            await until(lambda: server.working_bytes)
            await client.close()
            for each in asking:
                with pytest.raises(RemotingError):
                    await each
            with pytest.raises(RemotingError, match="closed"):
                await client.invoke(address_of(server), Command(1))
            await client.close()

    run(test())


@pytest.mark.parametrize(
    ("address", "parts"), [("h:1", ("h", 1)), ("[::1]:9876", ("::1", 9876)), ("10.0.0.1:65535", ("10.0.0.1", 65535))]
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "h", ":1", "h:", "h:x", "h:65536", "h:-1", "h:²"])
def test_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(ConnectFailed, match="not an address"):
        split_address(address)


def test_requests_of_one_turn_share_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        client = RemotingClient()
        async with serving(echo) as server:
            connection = await client.connect(address_of(server))
            writes: list[bytes] = []
            write = connection.write_frames
            monkeypatch.setattr(connection, "write_frames", lambda frames: (writes.extend(frames[:1]), write(frames)))
            await asyncio.gather(*(client.invoke(address_of(server), Command(1)) for _ in range(50)))
            assert len(writes) == 1
            await client.close()

    run(test())


def test_oneway_requests_are_sent_before_the_connection_closes() -> None:
    async def test() -> None:
        client = RemotingClient()
        told: list[bytes] = []

        def listen(_: Connection, request: Command) -> Answer:
            told.append(request.body)
            return None

        async with serving(listen) as server:
            connection = await client.connect(address_of(server))
            for number in range(10):
                connection.request_oneway(Command(1, body=b"%d" % number))
            connection.close()
            await until(lambda: len(told) == 10)
            await client.close()

    run(test())


def test_oneway_request_waits_for_a_slow_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitlog.remoting.client.CONNECT_SECONDS", 0.2)

    async def test() -> None:
        client = RemotingClient()
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            address = f"127.0.0.1:{deaf.getsockname()[1]}"
            body = bytes(1024 * 1024)
            with pytest.raises(RequestTimeout, match="send buffer is full"):
                for _ in range(200):
                    await client.invoke_oneway(address, Command(1, body=body))
            await client.close()

    run(test())


def test_silent_connection_is_closed_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitlog.remoting.client.SILENT_SECONDS", 0.05)

    async def test() -> None:
        client = RemotingClient()
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            address = f"127.0.0.1:{deaf.getsockname()[1]}"
            connection = await client.connect(address)
            with pytest.raises(RequestTimeout):
                await client.invoke(address, Command(1), timeout=0.1)
            await until(lambda: connection.is_closed)
            assert await client.connect(address) is not connection
            await client.close()

    run(test())
