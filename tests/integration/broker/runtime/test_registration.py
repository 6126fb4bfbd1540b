"""A broker registers with a name server at once after their connection was lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
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
                name = desk.broker.state.broker_name.encode()
                while name not in await brokers_known_to(address, desk):  # noqa: ASYNC110 - there is no event for it
                    await asyncio.sleep(0.01)
        finally:
            await server.stop()

    async def limited() -> None:
        async with asyncio.timeout(50):
            await test()

    asyncio.run(limited())


async def brokers_known_to(address: str, desk: Desk) -> bytes:
    answer = await desk.client.invoke(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_S)
    assert answer.code == ResponseCode.SUCCESS
    return bytes(answer.body)
