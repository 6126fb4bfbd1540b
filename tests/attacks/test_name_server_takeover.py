"""Name server: the name of a connected broker cannot be taken, and brokers leave without blocking other requests."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from orbitlog.errors import RequestRefused
from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import load_nameserver_settings
from orbitlog.nameserver.route_table import STEP_TOPICS, RouteTable
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.loop_slices import COUNTERS
from orbitlog.wire.bodies import registration_body
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.registration_body import Registration, TopicWrapper, encode_registration
from orbitlog.wire.bodies.route_bodies import QueueData, TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.nameserver_headers import RegisterBrokerRequest
from tests.support.loops import run, until
from tests.support.work_counters import peak_bytes_of, steps_of, watched_loops

REAL = RegisterBrokerRequest(
    broker_name="broker-a", broker_address="10.0.0.1:10911", cluster="C", ha_address="10.0.0.1:10912", broker_id=0
)
FAKE = replace(REAL, broker_address="6.6.6.6:10911", ha_address="6.6.6.6:10912")


def registration(count: int = 3, state_version: int = 0, prefix: str = "Topic") -> Registration:
    topics = {f"{prefix}{number}": TopicConfig(f"{prefix}{number}", 8, 8) for number in range(count)}
    return Registration(wrapper=TopicWrapper(topics=topics, data_version=DataVersion(1, 2, state_version)))


class Peer:
    """One connection to a name server."""

    def __init__(self, server: NameServer) -> None:
        self._address = "{}:{}".format(*server.address)
        self._client = RemotingClient()

    async def ask(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> Command:
        return await self._client.invoke(self._address, Command(code, ext_fields=fields, body=body), 60)

    async def register(self, header: RegisterBrokerRequest, body: bytes | None = None) -> Command:
        body = encode_registration(registration()) if body is None else body
        return await self.ask(RequestCode.REGISTER_BROKER, header.to_ext_fields(), body)

    async def address_of(self, topic: str = "Topic0") -> str | None:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if answer.code != ResponseCode.SUCCESS:
            return None
        return decode_body(TopicRoute, answer.body).brokers[0].addresses.get(0)

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def served(*settings: str) -> AsyncIterator[tuple[NameServer, Peer, Peer]]:
    """A name server, an honest broker that is registered, and a stranger."""
    server = NameServer(load_nameserver_settings(None, {}, ["listenPort=0", *settings]))
    await server.start()
    honest, stranger = Peer(server), Peer(server)
    try:
        assert (await honest.register(REAL)).code == 0
        yield server, honest, stranger
    finally:
        await honest.close()
        await stranger.close()
        await server.stop()


def test_stranger_cannot_take_the_name_of_a_connected_broker() -> None:
    async def test() -> None:
        async with served() as (_, honest, stranger):
            body = encode_registration(registration(state_version=2**40))
            for fake in (FAKE, replace(FAKE, cluster="Other"), replace(FAKE, cluster="Other", broker_id=7)):
                answer = await stranger.register(fake, body)
                assert answer.code == ResponseCode.SYSTEM_ERROR and "protectBrokerNames" in str(answer.remark)
            assert await stranger.address_of() == REAL.broker_address
            assert (await honest.register(REAL)).code == 0
            assert await stranger.address_of() == REAL.broker_address

    run(test())


def test_negative_broker_id_is_refused() -> None:
    async def test() -> None:
        async with served() as (_, _, stranger):
            fake = replace(FAKE, broker_id=-1, enable_acting_master=True)
            assert (await stranger.register(fake)).code == ResponseCode.SYSTEM_ERROR

    run(test())


def test_stranger_cannot_unregister_a_connected_broker() -> None:
    fields = {"brokerName": "broker-a", "brokerAddr": REAL.broker_address, "clusterName": "C", "brokerId": "0"}

    async def test() -> None:
        async with served() as (server, honest, stranger):
            refused = await stranger.ask(RequestCode.UNREGISTER_BROKER, fields)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert await stranger.address_of() == REAL.broker_address
            assert (await honest.ask(RequestCode.UNREGISTER_BROKER, fields)).code == ResponseCode.SUCCESS
            assert server.table.broker_count == 0
            assert (await stranger.register(FAKE)).code == ResponseCode.SUCCESS, "the name is free"

    run(test())


def test_stranger_that_names_the_address_of_a_broker_does_not_remove_it_at_its_end() -> None:
    """Both are on this machine, so the second connection may be the same broker after a lost connection."""

    async def test() -> None:
        async with served() as (server, honest, stranger):
            assert (await stranger.register(REAL)).code == ResponseCode.SUCCESS
            connections = len(server.connections)
            await stranger.close()
            await until(lambda: len(server.connections) < connections)
            assert await honest.address_of() == REAL.broker_address

    run(test())


def test_broker_of_another_host_cannot_register_the_address_of_a_connected_one() -> None:
    table = RouteTable()
    table.register(REAL, registration(), now_ms=0, connection="one", host="10.0.0.1")
    with pytest.raises(RequestRefused, match="another host"):
        table.register(REAL, registration(), now_ms=0, connection="two", host="10.0.0.2")
    table.register(REAL, registration(), now_ms=0, connection="three", host="10.0.0.1")
    assert table.connection_closed("one") == []
    assert len(table.connection_closed("three")) == 1


def test_stranger_cannot_keep_a_dead_broker_alive() -> None:
    fields = {"brokerName": "broker-a", "brokerAddr": REAL.broker_address, "clusterName": "C", "brokerId": "0"}

    async def test() -> None:
        async with served() as (server, _, stranger):
            (live,) = server.table._live.values()
            live.seen_ms = 5
            await stranger.ask(RequestCode.BROKER_HEARTBEAT, fields)
            await stranger.ask(RequestCode.QUERY_DATA_VERSION, fields, b"{}")
            assert live.seen_ms == 5

    run(test())


def test_stranger_cannot_register_a_topic_of_a_connected_broker() -> None:
    body = b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'

    async def test() -> None:
        async with served() as (_, honest, stranger):
            fields = {"topic": "Forged"}
            answer = await stranger.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, fields, body)
            assert answer.code == ResponseCode.NO_PERMISSION and await stranger.address_of("Forged") is None
            assert (await honest.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, fields, body)).code == 0
            assert await stranger.address_of("Forged") == REAL.broker_address

    run(test())


def test_name_is_free_after_its_connection_closed() -> None:
    async def test() -> None:
        async with served() as (server, honest, stranger):
            await honest.close()
            await until(lambda: server.table.broker_count == 0)
            assert (await stranger.register(FAKE)).code == 0
            assert await stranger.address_of() == FAKE.broker_address

    run(test())


def test_name_of_a_silent_broker_is_free() -> None:
    table = RouteTable()
    table.register(REAL, registration(), now_ms=0, connection="one")
    with pytest.raises(RequestRefused):
        table.register(FAKE, registration(), now_ms=1, connection="two")
    assert table.expire(120_001)
    assert table.register(FAKE, registration(), now_ms=120_001, connection="two") is not None


def test_roles_of_two_brokers_can_change() -> None:
    """A failover: the master becomes a slave by its own registration, and then the slave becomes the master."""
    table = RouteTable()
    slave = replace(FAKE, broker_id=1)
    table.register(REAL, registration(), now_ms=0, connection="one")
    table.register(slave, registration(), now_ms=0, connection="two")
    with pytest.raises(RequestRefused):
        table.register(FAKE, registration(), now_ms=1, connection="two")
    table.register(replace(REAL, broker_id=2), registration(), now_ms=2, connection="one")
    table.register(FAKE, registration(state_version=1), now_ms=3, connection="two")
    assert table.members("C", "broker-a").addresses == {0: FAKE.broker_address, 2: REAL.broker_address}


def test_protection_can_be_switched_off() -> None:
    async def test() -> None:
        async with served("protectBrokerNames=false") as (_, _, stranger):
            assert (await stranger.register(FAKE, encode_registration(registration(state_version=9)))).code == 0
            assert await stranger.address_of() == FAKE.broker_address

    run(test())


def test_heartbeat_timeout_is_bounded() -> None:
    async def test() -> None:
        async with served() as (server, honest, _):
            await honest.register(replace(REAL, heartbeat_timeout_ms=2**60))
            (live,) = server.table._live.values()
            assert live.silence_max_ms == 600_000
            assert server.limits.reached["heartbeatTimeoutMillisMax"] == 1

    run(test())


def test_brokers_and_topics_of_a_connection_are_limited() -> None:
    async def test() -> None:
        limits = ("brokersPerConnectionMax=3", "registeredTopicsPerConnectionMax=10", "registeredTopicsMax=20")
        async with served(*limits) as (server, honest, stranger):
            for number in range(4):
                header = replace(FAKE, broker_name=f"b{number}", broker_address=f"6.6.6.{number}:1")
                answer = await stranger.register(header, encode_registration(registration(2)))
                assert (answer.code == 0) == (number < 3)
            header = replace(FAKE, broker_name="b0", broker_address="6.6.6.0:1")
            refused = await stranger.register(header, encode_registration(registration(11)))
            assert "registeredTopicsPerConnectionMax" in str(refused.remark)
            assert (await honest.register(REAL, encode_registration(registration(11)))).code != 0
            assert server.limits.reached["brokersPerConnectionMax"] == 1
            assert server.limits.reached["registeredTopicsPerConnectionMax"] == 2

    run(test())


def test_inflated_bytes_are_limited() -> None:
    bomb = zlib.compress(bytes(40 * 1024 * 1024), 9)

    async def test() -> None:
        async with served() as (_, _, stranger):
            header = replace(FAKE, broker_name="b", compressed=True)
            answer = await stranger.register(header, bomb)
            assert answer.code != 0 and "inflated body" in str(answer.remark)

    peak = peak_bytes_of(lambda: run(test()))
    assert peak < 80 * 1024 * 1024


@pytest.mark.parametrize("compressed", [False, True])
def test_registration_of_many_topics_is_applied_in_short_steps(compressed: bool) -> None:
    body = encode_registration(registration(20_000), compressed=compressed)

    async def test() -> None:
        async with served() as (server, honest, _):
            COUNTERS.reset()
            assert (await honest.register(replace(REAL, compressed=compressed), body)).code == 0
            assert COUNTERS.steps >= 20_000 // registration_body.STEP_TOPICS + 20_000 // STEP_TOPICS
            assert COUNTERS.items_max <= max(STEP_TOPICS, registration_body.STEP_TOPICS)
            assert server.table.entry_count == 20_000

    run(test())


def test_work_of_a_step_does_not_grow_with_the_number_of_topics() -> None:
    def longest(count: int) -> int:
        async def test() -> None:
            async with served() as (server, honest, _):
                body = encode_registration(registration(count), compressed=True)
                with watched_loops() as steps:
                    await honest.register(replace(REAL, compressed=True), body)
                    await honest.close()
                    await until(lambda: server.table.entry_count == 0)
                longest_steps.append(steps.longest)

        longest_steps: list[int] = []
        asyncio.run(test())
        return longest_steps[0]

    small, large = longest(1_000), longest(5_000)
    assert large < 1.5 * small


def test_work_of_a_broker_that_leaves_does_not_depend_on_brokers_and_topics() -> None:
    def steps(broker_count: int, topic_count: int) -> int:
        table = RouteTable()
        for number in range(broker_count):
            header = replace(REAL, broker_name=f"b{number}", broker_address=f"10.0.0.{number}:1")
            table.register(header, registration(topic_count, prefix=f"b{number}-"), now_ms=0, connection=number)
        return steps_of(lambda: table.connection_closed(3))

    assert steps(10, 3) == steps(400, 3) == steps(10, 3_000)


def test_routes_are_right_while_topics_of_a_broker_that_left_are_swept() -> None:
    table = RouteTable()
    other = replace(REAL, broker_name="broker-b", broker_address="10.0.0.2:1")
    table.register(REAL, registration(2_000), now_ms=0, connection="one")
    table.register(other, registration(2), now_ms=0, connection="two")
    table.connection_closed("one")
    for _ in range(2):
        route = table.route("Topic0")
        assert route is not None and route.queues == (QueueData("broker-b", 8, 8, 6),)
        assert table.route("Topic5") is None
        assert table.topics()().topics == ("Topic0", "Topic1") == table.topics_of_cluster("C")().topics
        assert table.sweep() == STEP_TOPICS
    table.register(REAL, registration(10), now_ms=0, connection="one")
    while table.needs_sweep:
        assert table.sweep() <= STEP_TOPICS
    assert table.entry_count == 12 and len(table.topics()().topics) == 10
    assert table.route("Topic5") is not None and table.route("Topic1000") is None


def test_key_value_configs_do_not_grow_without_a_limit() -> None:
    async def check() -> None:
        async with served("kvConfigsMax=20", "kvConfigBytesMax=100000") as (server, _, stranger):
            codes = []
            for number, size in [*((n, 10) for n in range(30)), *((n, 30_000) for n in range(5))]:
                fields = {"namespace": "N", "key": f"k{number}", "value": "v" * size}
                codes.append((await stranger.ask(RequestCode.PUT_KV_CONFIG, fields)).code)
            assert codes == [0] * 20 + [29] * 10 + [0] * 3 + [29] * 2
            assert server.limits.reached["kvConfigsMax"] == 10
            assert server.limits.reached["kvConfigBytesMax"] == 2

    run(check())


def test_topics_with_more_queues_than_clients_can_list_are_refused() -> None:
    async def check() -> None:
        async with served() as (server, _, stranger):
            topics = {"Wide": TopicConfig("Wide", 2**31 - 1, 8)}
            wide = Registration(wrapper=TopicWrapper(topics=topics, data_version=DataVersion(1, 2, 0)))
            header = replace(FAKE, broker_name="broker-x")
            assert (await stranger.register(header, encode_registration(wide))).code == 29
            assert await stranger.address_of("Wide") is None
            assert server.limits.reached["queuesPerTopicMax"] == 1

    run(check())
