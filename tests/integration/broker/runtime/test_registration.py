"""A broker registers with a name server at once after their connection was lost, and with all that share a name."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from orbitlog.broker.runtime.name_server_lookup import NameServerLookup
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.observe.conditions import NAME_SERVER_LOST
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import TIMEOUT_S, Desk, desk_at, until

LONG_MS = "60000"


def test_broker_registers_after_a_lost_connection(tmp_path: Path) -> None:
    async def test() -> None:
        server = NameServer(NameServerSettings(listen_port=0))
        await server.start()
        try:
            address = f"127.0.0.1:{server.address[1]}"
            async with desk_at(tmp_path, namesrvAddr=address, registerNameServerPeriod=LONG_MS) as desk:
                await until(lambda: bool(server.connections))
                before = set(server.connections)
                for connection in before:
                    connection.close()
                # The next regular registration is a minute off, longer than this test waits.
                await until(lambda: bool(server.connections - before))
                await until_known_to(address, desk)
        finally:
            await server.stop()

    run_limited(test)


class Resolver:
    """Answers for `names.test`, and refuses every other name."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts

    def __call__(self, host: str, port: int, *arguments: Any, **words: Any) -> list[Any]:
        if host == "names.test" and self.hosts:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in self.hosts]
        raise socket.gaierror(socket.EAI_NONAME, "unknown")


def test_lookup_returns_every_address_of_a_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver, lookup = Resolver("127.0.0.1", "127.0.0.2", "127.0.0.1"), NameServerLookup()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    name_servers = ("names.test:9876", "unknown.test:1", "names.test:9876")
    both = ("127.0.0.1:9876", "127.0.0.2:9876", "unknown.test:1")
    assert asyncio.run(lookup.addresses(name_servers)) == both
    resolver.hosts = ()
    assert asyncio.run(lookup.addresses(name_servers)) == both, "the resolver does not answer for a while"
    resolver.hosts = ("127.0.0.3",)
    assert asyncio.run(lookup.addresses(name_servers)) == ("127.0.0.3:9876", "unknown.test:1")


def test_broker_registers_with_all_name_servers_that_share_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        first = NameServer(NameServerSettings(listen_port=0, bind_address="127.0.0.1"))
        await first.start()
        port = first.address[1]
        second = NameServer(NameServerSettings(listen_port=port, bind_address="127.0.0.2"))
        await second.start()
        resolver = Resolver("127.0.0.1", "127.0.0.2", "127.0.0.3")
        monkeypatch.setattr(socket, "getaddrinfo", resolver)
        settings = {"namesrvAddr": f"names.test:{port}", "fetchNameSrvAddrByDnsLookup": "true"}
        try:
            async with desk_at(tmp_path, registerNameServerPeriod="10000", **settings) as desk:
                state, registration = desk.broker.state, desk.broker._registration
                await until(lambda: bool(first.connections and second.connections))
                for host in ("127.0.0.1", "127.0.0.2"):
                    await until_known_to(f"{host}:{port}", desk)
                await until(lambda: state.conditions.is_active(NAME_SERVER_LOST, f"127.0.0.3:{port}"))
                resolver.hosts = ("127.0.0.2",)
                await registration.register()
                assert not list(state.conditions), "the name has this address no longer"
                assert registration.is_known
        finally:
            await first.stop()
            await second.stop()

    run_limited(test)


def run_limited(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(50):
            await test()

    asyncio.run(limited())


async def until_known_to(address: str, desk: Desk) -> None:
    name = desk.broker.state.broker_name.encode()
    while name not in await brokers_known_to(address, desk):  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


async def brokers_known_to(address: str, desk: Desk) -> bytes:
    answer = await desk.client.invoke(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S)
    assert answer.code == ResponseCode.SUCCESS
    return bytes(answer.body)
