"""The name server over sockets, with requests of brokers, clients and tools."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from orbitlog.formats.tables.topic_config import DataVersion, TopicConfig
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings, load_nameserver_settings
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.bodies.registration_body import (
    Registration,
    TopicWrapper,
    encode_registration,
    registration_crc,
)
from orbitlog.wire.bodies.route_bodies import QueueData, TopicRoute
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from tests.support.loops import run, until

SETTINGS = NameServerSettings(listen_port=0)
BROKER = {
    "brokerName": "a",
    "brokerAddr": "10.0.0.1:10911",
    "clusterName": "C",
    "haServerAddr": "10.0.0.1:10912",
    "brokerId": "0",
}
TOPICS = {name: TopicConfig(name, 8, 8) for name in ("T", "TBW102", "a")}
REGISTRATION = Registration(wrapper=TopicWrapper(topics=TOPICS, data_version=DataVersion(1, 2)))


class Asker:
    """A peer of the name server, with a connection of its own."""

    def __init__(self, server: NameServer) -> None:
        host, port = server.address
        self._address = f"{host}:{port}"
        self._client = RemotingClient()

    async def ask(self, code: RequestCode, body: bytes = b"", version: int = 479, **fields: str) -> Command:
        return await self._client.invoke(self._address, Command(code, ext_fields=fields, body=body, version=version))

    async def register(self, registration: Registration = REGISTRATION, **fields: str) -> Command:
        return await self.ask(RequestCode.REGISTER_BROKER, encode_registration(registration), **{**BROKER, **fields})

    async def route(self, topic: str = "T") -> TopicRoute | None:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        return decode_body(TopicRoute, answer.body)

    async def close(self) -> None:
        await self._client.close()


@asynccontextmanager
async def nameserver(
    settings: NameServerSettings = SETTINGS, now_ms: Callable[[], int] | None = None
) -> AsyncIterator[tuple[NameServer, Asker]]:
    server = NameServer(settings, now_ms=now_ms)
    await server.start()
    asker = Asker(server)
    try:
        yield server, asker
    finally:
        await asker.close()
        await server.stop()


def test_client_gets_the_route_that_a_broker_registered() -> None:
    async def test() -> None:
        async with nameserver() as (_, asker):
            answer = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
            assert (answer.code, answer.remark) == (17, "No topic route info in name server for the topic: T")
            assert (await asker.register()).code == 0
            answer = await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="T")
            assert answer.body == (
                b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"a","cluster":"C",'
                b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,'
                b'"readQueueNums":8,"topicSynFlag":0,"topicSysFlag":0,"writeQueueNums":8}]}'
            )
            assert (await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)).remark == "the custom field <topic> is null"
            info = orjson.loads((await asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
            assert info["clusterAddrTable"] == {"C": ["a"]}
            assert info["brokerAddrTable"]["a"]["brokerAddrs"] == {"0": "10.0.0.1:10911"}

    run(test())


def test_route_changes_with_every_registration() -> None:
    async def test() -> None:
        async with nameserver() as (_, asker):
            await asker.register()
            assert await asker.route() is not None
            await asker.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="a")
            route = await asker.route()
            assert route is not None and route.queues[0].permission == 4
            answer = await asker.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="a")
            assert answer.ext_fields == {"addTopicCount": "3"}
            await asker.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="T", clusterName="C")
            assert await asker.route() is None
            body = encode_body(TopicRoute(queues=(QueueData("a", 1, 1, 6),)))
            assert (await asker.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, body, topic="T")).code == 0
            assert await asker.route() is not None
            await asker.ask(RequestCode.UNREGISTER_BROKER, **BROKER)
            assert await asker.route() is None

    run(test())


def test_routes_are_refused_for_some_seconds_after_a_start() -> None:
    async def test() -> None:
        now_ms = 1_000
        settings = dataclasses.replace(SETTINGS, waits={"needWaitForService": True, "waitSecondsForService": 45})
        async with nameserver(settings, lambda: now_ms) as (_, asker):
            await asker.register()
            for passed_ms, topic, expected in (
                (0, "T", ResponseCode.SYSTEM_ERROR),
                (0, "Nowhere", ResponseCode.SYSTEM_ERROR),
                (44_999, "T", ResponseCode.SYSTEM_ERROR),
                (45_000, "T", ResponseCode.SUCCESS),
                (45_000, "Nowhere", ResponseCode.TOPIC_NOT_EXIST),
            ):
                now_ms = 1_000 + passed_ms
                assert (await asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)).code == expected

    run(test())


@pytest.mark.parametrize("version", [409, 479])
def test_a_compressed_registration(version: int) -> None:
    async def test() -> None:
        async with nameserver() as (_, asker):
            body = encode_registration(REGISTRATION, compressed=True)
            crc = str(registration_crc(body))
            header = {**BROKER, "compressed": "true", "bodyCrc32": crc}
            assert (await asker.ask(RequestCode.REGISTER_BROKER, body, version, **header)).code == 0
            assert await asker.route() is not None
            wrong = await asker.ask(RequestCode.REGISTER_BROKER, body + b"x", version, **header)
            assert (wrong.code, wrong.remark) == (1, "crc32 not match")
            header["bodyCrc32"] = "0"
            for damaged in (b"", body[:20], b"no zlib at all"):
                answer = await asker.ask(RequestCode.REGISTER_BROKER, damaged, version, **header)
                assert answer.code == (1 if damaged else 0)

    run(test())


def test_invalid_registrations_are_refused() -> None:
    async def test() -> None:
        async with nameserver() as (_, asker):
            one = Registration(wrapper=TopicWrapper(topics={"T": TOPICS["T"]}))
            answer = await asker.register(one)
            assert (answer.code, answer.remark) == (1, "register broker failed")
            for fields in ({"brokerName": ""}, {"brokerAddr": "a\nb"}, {"clusterName": "x" * 300}, {"brokerId": "x"}):
                assert (await asker.register(**fields)).code == 1
            evil = Registration(wrapper=TopicWrapper(topics={"x": TopicConfig("x\r\ny"), "T": TOPICS["T"]}))
            assert (await asker.register(evil)).code == 1
            assert (await asker.ask(RequestCode.REGISTER_BROKER, b"[[[[", **BROKER)).code == 1
            assert orjson.loads((await asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body) == {
                "brokerAddrTable": {},
                "clusterAddrTable": {},
            }

    run(test())


def test_number_of_brokers_is_limited() -> None:
    settings = load_nameserver_settings(None, {}, ["listenPort=0", "brokersMax=1"])

    async def test() -> None:
        async with nameserver(settings) as (server, asker):
            assert (await asker.register()).code == 0
            assert (await asker.register()).code == 0
            refused = await asker.register(brokerName="b", brokerAddr="10.0.0.2:10911")
            assert refused.code == ResponseCode.INVALID_PARAMETER and "brokersMax" in str(refused.remark)
            assert server.limits.reached["brokersMax"] == 1

    run(test())


def test_broker_is_removed_with_its_connection() -> None:
    async def test() -> None:
        async with nameserver() as (server, asker):
            broker = Asker(server)
            await broker.register()
            await broker.register()
            assert await asker.route() is not None
            await broker.close()
            await until(lambda: server.table.broker_count == 0)
            assert await asker.route() is None

    run(test())


def test_silent_broker_is_removed_and_disconnected() -> None:
    async def test() -> None:
        now = 0
        settings = dataclasses.replace(SETTINGS, scan_not_active_broker_interval=10)
        async with nameserver(settings, now_ms=lambda: now) as (server, asker):
            broker = Asker(server)
            await broker.register()
            now = 100_000
            await broker.ask(RequestCode.BROKER_HEARTBEAT, **BROKER)
            now = 200_000
            version = encode_body(DataVersion(1, 2))
            answer = await broker.ask(RequestCode.QUERY_DATA_VERSION, version, **BROKER)
            assert answer.ext_fields == {"changed": "false"}
            assert answer.body == b'{"counter":1,"stateVersion":0,"timestamp":2}'
            now = 320_000
            await asyncio.sleep(0.05)
            assert server.table.broker_count == 1
            now = 320_001
            await until(lambda: server.table.broker_count == 0)
            answer = await asker.ask(RequestCode.QUERY_DATA_VERSION, version, **BROKER)
            assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
            await until(lambda: len(server.connections) == 1)
            await broker.close()

    run(test())


def test_lists_of_topics() -> None:
    async def test() -> None:
        async with nameserver() as (_, asker):
            await asker.register()
            expected = {
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {"topicList": ["T", "TBW102", "a"]},
                RequestCode.GET_TOPICS_BY_CLUSTER: {"topicList": ["T", "TBW102", "a"]},
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: {"brokerAddr": "10.0.0.1:10911", "topicList": ["C", "a"]},
                RequestCode.GET_UNIT_TOPIC_LIST: {"topicList": []},
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: {"topicList": []},
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {"topicList": []},
            }
            for code, topics in expected.items():
                assert orjson.loads((await asker.ask(code, cluster="C")).body) == topics
            answer = await asker.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName="a")
            assert orjson.loads(answer.body) == {
                "brokerMemberGroup": {"brokerAddrs": {"0": "10.0.0.1:10911"}, "brokerName": "a", "cluster": "C"}
            }
        hidden = dataclasses.replace(SETTINGS, enable_topic_list=False, enable_all_topic_list=False)
        async with nameserver(hidden) as (_, asker):
            for code in expected.keys() - {RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS}:
                answer = await asker.ask(code, cluster="C")
                assert (answer.code, answer.remark) == (1, "disable")

    run(test())


def test_key_value_configs_and_ordered_topics(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "kvConfig.json"
        settings = dataclasses.replace(SETTINGS, kv_config_path=path, order_message_enable=True)
        key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
        async with nameserver(settings) as (_, asker):
            assert (await asker.register()).body == b""
            route = await asker.route()
            assert route is not None and route.order_topic_conf is None
            assert (await asker.ask(RequestCode.GET_KV_CONFIG, **key)).code == 22
            assert (await asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")).code == 22
            assert (await asker.ask(RequestCode.PUT_KV_CONFIG, **key)).code == 1
            assert (await asker.ask(RequestCode.PUT_KV_CONFIG, **key, value="a:4")).code == 0
            assert (await asker.ask(RequestCode.GET_KV_CONFIG, **key)).ext_fields == {"value": "a:4"}
            listed = await asker.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG")
            assert listed.body == b'{"table":{"T":"a:4"}}'
            assert (await asker.register()).body == b'{"table":{"T":"a:4"}}'
            route = await asker.route()
            assert route is not None and route.order_topic_conf == "a:4"
        async with nameserver(settings) as (_, asker):
            await asker.register()
            route = await asker.route()
            assert route is not None and route.order_topic_conf == "a:4"
            assert (await asker.ask(RequestCode.DELETE_KV_CONFIG, **key)).code == 0
            route = await asker.route()
            assert route is not None and route.order_topic_conf is None

    run(test())


def test_requests_cannot_change_settings(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "kvConfig.json"
        settings = dataclasses.replace(SETTINGS, kv_config_path=path)
        async with nameserver(settings) as (server, asker):
            attacks = (
                b"kvConfigPath=/etc/cron.d/x\nconfigStorePath=/etc/cron.d/x\n",
                b"rocketmqHome=-c {touch,/x}|sh\n",
                b"orderMessageEnable=true\n",
                b"",
            )
            for attack in attacks:
                answer = await asker.ask(RequestCode.UPDATE_NAMESRV_CONFIG, attack)
                assert answer.code == ResponseCode.NO_PERMISSION
            assert server.settings == settings
            shown = (await asker.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
            assert "orderMessageEnable=false\n" in shown
            assert str(tmp_path) not in shown and "127.0.0.1" not in shown
            assert not path.exists()

    run(test())


def test_broker_codes_are_not_supported() -> None:
    async def test() -> None:
        async with nameserver() as (_, asker):
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.POP_MESSAGE):
                answer = await asker.ask(code)
                assert (answer.code, answer.remark) == (3, f" request type {int(code)} not supported")

    run(test())


def test_every_request_gets_a_response(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(11)
    values = [
        "",
        "T",
        "a",
        "C",
        "0",
        "-1",
        "x" * 400,
        "../../etc",
        "a\nb",
        "9" * 30,
        "true",
        "ORDER_TOPIC_CONFIG",
        "\ud800",
    ]
    names = sorted({*BROKER, "topic", "cluster", "namespace", "key", "value", "compressed", "bodyCrc32"})
    bodies = [
        b"",
        b"{}",
        b"[]",
        b"{",
        b"\xff",
        b'{"queueDatas":[{}]}',
        b'{"counter":"x"}',
        encode_registration(REGISTRATION),
    ]

    async def test() -> None:
        async with nameserver() as (server, asker):
            codes = sorted(server.served_codes)
            for _ in range(1500):
                fields = {name: chance.choice(values) for name in chance.sample(names, chance.randrange(len(names)))}
                answer = await asker.ask(RequestCode(chance.choice(codes)), chance.choice(bodies), **fields)
                assert answer.is_response and answer.code in (0, 1, 3, 16, 17, 22)
                assert "Traceback" not in str(answer.remark)

    run(test())
    surprises = [record for record in caplog.records if record.exc_info]
    assert not surprises, surprises[0].exc_text


def test_name_servers_are_independent() -> None:
    async def test() -> None:
        async with nameserver() as (_, first), nameserver() as (_, second):
            await first.register()
            assert await first.route() is not None
            assert await second.route() is None

    run(test())
