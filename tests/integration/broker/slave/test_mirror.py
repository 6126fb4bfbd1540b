"""A mirror of an Orbitlog master: what it copies, that it does not count as a copy, and how it takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.slave.mirror import Mirror, MirrorTarget
from orbitlog.broker.slave.take_over import TakeOver
from orbitlog.errors import OrbitlogError, RemotingError
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, desk_at, records, until

NAME = "broker-a"
SOON = {"haSendHeartbeatInterval": "100", "syncBrokerMetadataPeriod": "500", "listenPort": "0"}


@asynccontextmanager
async def name_server() -> AsyncIterator[str]:
    server = NameServer(NameServerSettings(listen_port=0))
    await server.start()
    try:
        yield f"127.0.0.1:{server.address[1]}"
    finally:
        await server.stop()


def mirror_of(address: str, root: Path, **settings: str) -> Mirror:
    target = MirrorTarget((address,), NAME)
    return Mirror(BrokerSettings({**SOON, **settings, **target.texts}), root, target)


@asynccontextmanager
async def mirror_at(address: str, root: Path, **settings: str) -> AsyncIterator[Mirror]:
    mirror = mirror_of(address, root, **settings)
    try:
        await mirror.start()
        yield mirror
    finally:
        await mirror.stop()


async def send_all(desk: Desk, count: int, size_bytes: int = 100) -> None:
    for number in range(count):
        assert (await desk.send(body=bytes([number % 256]) * size_bytes)).code == ResponseCode.SUCCESS


async def copied(mirror: Mirror, desk: Desk) -> None:
    copy, store = mirror.broker.state.store, desk.broker.state.store
    await until(lambda: copy.written_to == store.written_to and copy.dispatched_to == copy.written_to)


def segments(root: Path) -> dict[str, bytes]:
    return {
        path.name: content for path in (root / "commitlog").iterdir() if (content := path.read_bytes()).strip(b"\0")
    }


def desk_of(mirror: Mirror, client: RemotingClient) -> Desk:
    return Desk(mirror.broker, client, [])


@pytest.mark.parametrize("first", ["first", "last"])
def test_mirror_copies_the_whole_log_and_the_file_sizes_of_the_master(tmp_path: Path, first: str) -> None:
    """Also of a master that serves its last segment, as Apache's do."""

    async def run() -> None:
        async with (
            name_server() as address,
            desk_at(tmp_path / "master", namesrvAddr=address, haFirstRequest=first, slaveTimeout="100") as master,
        ):
            await send_all(master, 50, 50_000)
            async with mirror_at(address, tmp_path / "copy") as mirror:
                await copied(mirror, master)
                await send_all(master, 3)
                await copied(mirror, master)
                assert mirror.broker.state.store.segment_bytes == 1024 * 1024
                await until(lambda: mirror.broker.state.topics.find("Orders") is not None)
                async with _client() as client:
                    copy = desk_of(mirror, client)
                    pulled = await copy.pull(queue_offset=50)
                    assert len(records(pulled)) == 3
                    assert (await copy.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
                    listed = await client.invoke(address, _cluster_info())
                    assert str(mirror.broker.address[1]).encode() not in listed.body, "a mirror is not registered"
                assert len(segments(tmp_path / "copy")) == 3
                assert segments(tmp_path / "copy") == segments(tmp_path / "master")

    uvloop.run(run())


def test_sync_master_does_not_count_a_mirror(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            name_server() as address,
            desk_at(tmp_path / "master", namesrvAddr=address, brokerRole="SYNC_MASTER", slaveTimeout="200") as master,
        ):
            assert (await master.send()).code == ResponseCode.SLAVE_NOT_AVAILABLE
            for _ in range(2):
                async with mirror_at(address, tmp_path / "copy") as mirror:
                    await until(lambda: bool(master.broker._master.slaves))
                    answers = {(await master.send()).code for _ in range(3)}
                    assert ResponseCode.SUCCESS not in answers
                    await copied(mirror, master)
                    assert [slave.acked_to for slave in master.broker._master.slaves] == [-1]
            # The second one asked for its end, and was then known as an observer.
            assert answers <= {ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}

    uvloop.run(run())


def test_new_mirror_without_a_master_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with name_server() as address, desk_at(tmp_path / "master", namesrvAddr=address, brokerName="other"):
            mirror = mirror_of(address, tmp_path / "copy")
            with pytest.raises(RemotingError, match="no master of broker-a is registered; registered names: other"):
                await mirror.start()
            await mirror.stop()
            assert not (tmp_path / "copy").exists()

    uvloop.run(run())


def test_mirror_serves_the_copy_while_the_master_is_down_and_continues_after_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with name_server() as address:
            master_settings = {"namesrvAddr": address, "slaveTimeout": "50"}
            async with desk_at(tmp_path / "master", **master_settings) as master:
                await send_all(master, 5)
                async with mirror_at(address, tmp_path / "copy") as mirror:
                    await copied(mirror, master)
                    await until(lambda: mirror.broker.state.topics.find("Orders") is not None)
            async with mirror_at(address, tmp_path / "copy") as mirror, _client() as client:
                assert mirror.master is None
                assert len(records(await desk_of(mirror, client).pull())) == 5
                async with desk_at(tmp_path / "master", **master_settings) as master:
                    await send_all(master, 2)
                    await copied(mirror, master)

    uvloop.run(run())


def test_planned_take_over_copies_everything_and_registers_as_the_master(tmp_path: Path) -> None:
    async def run() -> None:
        events: list[str] = []
        async with name_server() as address:
            async with desk_at(tmp_path / "master", namesrvAddr=address, slaveTimeout="50") as master:
                await send_all(master, 5)
                mirror = mirror_of(address, tmp_path / "copy")
                await mirror.start()
                taking = asyncio.create_task(TakeOver(mirror, lambda event, _: events.append(event)).run(60))
                await until(lambda: "stop-master" in events or taking.done())
                assert master.broker.state.settings.texts["brokerPermission"] == "4"
            await asyncio.wait_for(taking, 30)
            try:
                async with _client() as client:
                    copy = desk_of(mirror, client)
                    answer = await copy.send()
                    assert (answer.code, answer.ext_fields["queueOffset"]) == (ResponseCode.SUCCESS, "5")
                    listed = await client.invoke(address, _cluster_info())
                    assert f":{mirror.broker.address[1]}".encode() in listed.body
            finally:
                await mirror.stop()
        assert events == ["copying", "sends-stopped", "stop-master", "took-over"]

    uvloop.run(run())


def test_master_that_is_not_stopped_in_time_accepts_sends_as_before(tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            name_server() as address,
            desk_at(tmp_path / "master", namesrvAddr=address, slaveTimeout="50") as master,
        ):
            await send_all(master, 5)
            async with mirror_at(address, tmp_path / "copy") as mirror:
                with pytest.raises(OrbitlogError, match="was not stopped within 1 s"):
                    await TakeOver(mirror, lambda *_: None).run(1)
                assert master.broker.state.settings.texts["brokerPermission"] == "6"
                assert mirror.broker.slave is not None

    uvloop.run(run())


def test_take_over_after_loss_is_refused_while_the_master_is_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with name_server() as address:
            async with desk_at(tmp_path / "master", namesrvAddr=address, slaveTimeout="50") as master:
                await send_all(master, 5)
                mirror = mirror_of(address, tmp_path / "copy")
                await mirror.start()
                await copied(mirror, master)
                with pytest.raises(OrbitlogError, match="is not lost"):
                    await TakeOver(mirror, lambda *_: None).run_after_loss()
            await TakeOver(mirror, lambda *_: None).run_after_loss()
            async with _client() as client:
                assert (await desk_of(mirror, client).send()).ext_fields["queueOffset"] == "5"
            await mirror.stop()

    uvloop.run(run())


@asynccontextmanager
async def _client() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    try:
        yield client
    finally:
        await client.close()


def _cluster_info() -> Command:
    return Command(RequestCode.GET_BROKER_CLUSTER_INFO)
