"""Very many topics: a broker stays registered, and no registration is larger than a part."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from orbitlog.cli.serve import serving
from orbitlog.cli.serve.serving import ShortCollections
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.nameserver.route_table import STEP_TOPICS
from orbitlog.remoting import thread_pace
from orbitlog.remoting.loop_slices import COUNTERS
from orbitlog.remoting.thread_pace import ThreadPace
from orbitlog.remoting.whole_tables import WholeTables
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.broker_desk import Desk, at_desk, desk_at, until

PERIOD = {"registerNameServerPeriod": "60000"}


@asynccontextmanager
async def registered(root: Path, **settings: str) -> AsyncIterator[tuple[NameServer, Desk, list[Command]]]:
    """A name server, a broker that registers with it, and the requests that the name server got."""
    server = NameServer(NameServerSettings(listen_port=0))
    received: list[Command] = []
    serve = server._server._handler

    def count(connection: object, request: Command) -> object:
        received.append(request)
        return serve(connection, request)  # type: ignore[arg-type]

    server._server._handler = count  # type: ignore[assignment]
    await server.start()
    try:
        address = f"127.0.0.1:{server.address[1]}"
        async with desk_at(root, namesrvAddr=address, **PERIOD, **settings) as desk:
            yield server, desk, received
    finally:
        await server.stop()


def put_quietly(desk: Desk, names: list[str]) -> None:
    """Add topics without a registration of each."""
    topics = desk.broker.state.topics
    topics._topics.update({name: TopicConfig(name, 4, 4) for name in names})
    topics.touch()


def codes(received: list[Command]) -> list[int]:
    return [request.code for request in received]


def test_topics_that_fill_several_frames_are_registered_in_parts(tmp_path: Path) -> None:
    """In one frame these would be 30 MB, which no name server accepts: the broker would vanish from every route."""

    async def test() -> None:
        async with registered(tmp_path) as (server, desk, received):
            count = 60_000
            put_quietly(desk, [f"{'x' * 89}{number:06d}" for number in range(count)])
            COUNTERS.reset()
            await desk.broker._registration.register()
            assert server.table.entry_count == len(desk.broker.state.topics.table) > count
            assert COUNTERS.items_max <= STEP_TOPICS
            assert max(len(request.body) for request in received) < 512 * 1024

    asyncio.run(test())


def test_change_of_one_topic_among_many_is_registered_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with registered(tmp_path, splitRegistrationSize="100") as (server, desk, received):
            put_quietly(desk, [f"T{number}" for number in range(1_000)])
            registration = desk.broker._registration
            await registration.register()
            await registration.register()
            received.clear()
            desk.broker.state.topics.find_or_create("OneMore", 4)
            await until(lambda: server.table.route("OneMore") is not None)
            (request,) = received
            assert request.code == RequestCode.REGISTER_BROKER and request.body.count(b"topicName") == 1

    asyncio.run(test())


def test_unchanged_topics_are_registered_only_if_the_name_server_lost_them(tmp_path: Path) -> None:
    async def test() -> None:
        async with registered(tmp_path, splitRegistrationSize="100") as (server, desk, received):
            put_quietly(desk, [f"T{number}" for number in range(1_000)])
            registration = desk.broker._registration
            await registration.register()
            server.table.wipe_write_permission(desk.broker.state.broker_name)
            received.clear()
            await registration.register()
            assert set(codes(received)) == {RequestCode.QUERY_DATA_VERSION}
            route = server.table.route("T5")
            assert route is not None and route.queues[0].permission == 4, "an operator's change stays"
            for key in list(server.table._live):
                server.table._forget(key)
            await registration.register()
            assert server.table.entry_count >= 1_000 and server.table.route("T5") is not None

    asyncio.run(test())


def test_lost_connection_leads_to_a_complete_registration(tmp_path: Path) -> None:
    async def test() -> None:
        async with registered(tmp_path, splitRegistrationSize="100") as (server, desk, _):
            put_quietly(desk, [f"T{number}" for number in range(1_000)])
            await desk.broker._registration.register()
            for connection in list(server.connections):
                connection.close()
            await until(lambda: server.table.broker_count == 0)
            await until(lambda: server.table.route("T999") is not None and server.table.route("T0") is not None)

    asyncio.run(test())


def test_compressed_parts_are_understood(tmp_path: Path) -> None:
    async def test() -> None:
        settings = {"splitRegistrationSize": "100", "compressedRegister": "true"}
        async with registered(tmp_path, **settings) as (server, desk, received):
            put_quietly(desk, [f"T{number}" for number in range(1_000)])
            desk.broker.state.topics.put(TopicConfig("Unit", 1, 1, sys_flag=1))
            await desk.broker._registration.register()
            assert server.table.entry_count >= 1_000
            assert {request.ext_fields.get("compressed") for request in received if request.code == 103} == {
                "true",
                "false",
            }
            route = server.table.route("Unit")
            assert route is not None and route.queues[0].sys_flag == 1

    asyncio.run(test())


def test_large_tables_are_encoded_with_rests_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding contends with the event loop for the interpreter: a peer must not keep a thread at it."""
    monkeypatch.setattr(thread_pace, "SHORT_SECONDS", 0.0)

    async def check_rest(pace: ThreadPace, work: Callable[[], Awaitable[object]]) -> None:
        await work()
        assert pace._rests_until_s > 0
        rests = 0

        async def rest() -> None:
            nonlocal rests
            rests += 1

        monkeypatch.setattr(pace, "rest", rest)
        await work()
        assert rests > 0

    async def work(desk: Desk) -> None:
        put_quietly(desk, [f"T{number}" for number in range(1_000)])
        saver = desk.broker._saver

        async def save() -> None:
            desk.broker.state.topics.touch()
            await saver._save_tables()

        pace = saver._pace_of_large_tables()
        assert pace is not None
        await check_rest(pace, save)
        tables = WholeTables()
        request = Command(RequestCode.GET_ALL_TOPIC_CONFIG)
        count, snapshot = len(desk.broker.state.topics.table), desk.broker.state.topics.snapshot
        await check_rest(tables._pace, lambda: tables.answer(request, count, lambda: snapshot))

    at_desk(tmp_path, work)


def test_update_that_changes_nothing_saves_and_registers_nothing(tmp_path: Path) -> None:
    topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
    group = orjson.dumps({"groupName": "g"})

    async def work(desk: Desk) -> None:
        state = desk.broker.state

        async def update() -> tuple[object, object]:
            answer = await desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **topic)
            assert answer.code == ResponseCode.SUCCESS
            assert (await desk.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)).code == ResponseCode.SUCCESS
            return state.topics.data_version, state.groups.data_version

        versions = await update()
        encoded: list[str] = []
        encode = desk.broker._saver._directory.encode
        desk.broker._saver._directory.encode = lambda file, table: (  # type: ignore[method-assign]
            encoded.append(file.name),
            encode(file, table),
        )[1]
        assert await update() == versions
        assert not encoded
        topic["perm"] = "4"
        assert await update() != versions
        assert encoded == ["topics.json", "subscriptionGroup.json"]

    at_desk(tmp_path, work)


def test_objects_that_a_long_collection_kept_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = gc.get_freeze_count()
    callback = ShortCollections()
    gc.callbacks.append(callback)
    try:
        monkeypatch.setattr(serving, "LONG_COLLECTION_SECONDS", 60.0)
        gc.collect()
        assert gc.get_freeze_count() == frozen, "a short one changes nothing"
        monkeypatch.setattr(serving, "LONG_COLLECTION_SECONDS", 0.0)
        gc.collect()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.callbacks.remove(callback)
        gc.unfreeze()
