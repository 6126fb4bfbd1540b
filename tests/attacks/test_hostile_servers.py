"""Servers that are hostile to a client: huge routes, long bodies, senseless offsets, answers in tiny pieces."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
import pytest

import orbitlog
from orbitlog.client.connection.server_requests import CHECK_BYTES_MAX, CHECKS_MAX, ServerRequests
from orbitlog.errors import BadRequest, LimitExceeded, OrbitlogError, RemotingError, WireError
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.read_plan import ClusterShape, QueueRange, plan_tasks
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import NO_ANSWER
from orbitlog.replication.group.etcd_gateway import EtcdGateway
from orbitlog.wire.bodies.body_json import decode_body, read_body
from orbitlog.wire.bodies.route_bodies import ROUTE_BROKERS_MAX, ROUTE_QUEUES_MAX, TopicRoute
from orbitlog.wire.command import Command
from tests.support.hostile_server import hostile_server
from tests.support.work_counters import peak_bytes_of, steps_of

ROUTE = 105


def route(queue_count: int = 4, *, brokers: int = 1, order: str = "") -> bytes:
    names = [f"b{number}" for number in range(brokers)]
    data: dict[str, object] = {
        "brokerDatas": [{"brokerName": name, "brokerAddrs": {"0": "127.0.0.1:1"}} for name in names],
        "queueDatas": [{"brokerName": "b0", "readQueueNums": queue_count, "writeQueueNums": queue_count, "perm": 6}],
    }
    return orjson.dumps({**data, "orderTopicConf": order} if order else data)


HUGE = {
    "queues": route(2**31 - 1),
    "ordered queues": route(order="b0:99999;" * (ROUTE_QUEUES_MAX // 99_999 + 1)),
    "brokers": route(brokers=ROUTE_BROKERS_MAX + 1),
    "values": b"{x:[" + b'"\\n",' * 500_000 + b"1]}",
    "escapes": b"{x:'" + b"\\n" * 2_100_000 + b"'}",
}


@pytest.mark.parametrize("body", HUGE.values(), ids=HUGE.keys())
def test_huge_route_is_refused_without_an_object_for_each_entry(body: bytes) -> None:
    async def send() -> None:
        async with (
            hostile_server(lambda code: (0, {}, body if code == ROUTE else b"{}")) as address,
            orbitlog.connect(address) as mq,
        ):
            with pytest.raises(LimitExceeded):
                await mq.send("T", b"x", timeout=3)

    assert peak_bytes_of(lambda: asyncio.run(send())) < 32 * 1024 * 1024 + 8 * len(body)


ADDRESSES = (
    *("a..b:1", ".:1", f"{'a' * 64}.b:1", f"{'a' * 1_000_000}:1", "\ufeff:1", "a\0b:1", "a\r\nb:1", ":1", "h:65536"),
    f"h:{'1' * 5_000}",  # more digits than Python converts
)


@pytest.mark.parametrize("address", ADDRESSES, ids=[ascii(address[:8]) for address in ADDRESSES])
def test_address_that_no_resolver_takes_is_a_failed_connection(address: str) -> None:
    """Resolvers raise `UnicodeError` and `ValueError` for some of them, which no caller expects."""
    data = orjson.loads(route())
    data["brokerDatas"][0]["brokerAddrs"]["0"] = address

    async def send() -> None:
        async with (
            hostile_server(lambda code: (0, {}, orjson.dumps(data) if code == ROUTE else b"{}")) as server,
            orbitlog.connect(server) as mq,
        ):
            with pytest.raises(OrbitlogError, match="is not an address") as raised:
                await mq.send("T", b"x", timeout=3)
            assert len(str(raised.value)) < 2_000

    asyncio.run(send())


def test_addresses_of_lost_and_failed_connections_are_forgotten() -> None:
    """A name server may state new ones without end."""

    async def run() -> None:
        client = RemotingClient()
        for number in range(200):
            with pytest.raises(RemotingError):
                await client.connect(f"a..{number}:1")
        async with hostile_server(lambda _: (0, {}, b"")) as server:
            await client.invoke(server, Command(28))
            assert list(client._connections) == [server]
        for _ in range(100):
            await asyncio.sleep(0.01)
            if not client._connections:
                break
        assert not client._connections
        await client.close()

    asyncio.run(run())


def test_queue_of_a_broker_without_an_address_is_left_out() -> None:
    async def reset() -> None:
        data = orjson.loads(route())
        data["brokerDatas"] = []
        async with (
            hostile_server(lambda _: (0, {}, orjson.dumps(data))) as server,
            orbitlog.connect(server) as mq,
        ):
            assert not await mq.admin.reset_offsets("g", "T", 0)

    asyncio.run(reset())


def test_malformed_route_does_not_end_the_search_for_a_new_master() -> None:
    answers = [b"[]", b"\0", b'{"queueDatas":[1]}', route()]

    async def run() -> None:
        async with (
            hostile_server(lambda _: (0, {}, answers.pop(0) if len(answers) > 1 else answers[0])) as server,
            orbitlog.connect(server) as mq,
        ):
            mq._routes.suspect("T")
            task = mq._routes._suspected["T"]
            await asyncio.wait_for(task, 30)
            assert mq._routes.known("T") is not None
            answers[:] = [b"[]"]
            assert (await mq._routes.freshest("T")).brokers, "the known route is used"
            await mq._routes.refresh_all()

    asyncio.run(run())


def test_brokers_without_a_route_are_forgotten() -> None:
    async def run() -> None:
        number = 0

        def answer(_: int) -> tuple[int, dict[str, str], bytes]:
            nonlocal number
            number += 1
            names = [f"b{number}-{broker}" for broker in range(ROUTE_BROKERS_MAX // 4)]
            data = [{"brokerName": name, "brokerAddrs": {"0": "127.0.0.1:1"}} for name in names]
            return 0, {}, orjson.dumps({"brokerDatas": data, "queueDatas": []})

        async with hostile_server(answer) as server, orbitlog.connect(server) as mq:
            for _ in range(16):
                await mq._routes.refresh("T")
            assert len(mq._routes._addresses) <= ROUTE_BROKERS_MAX
            assert len(mq._routes.all_addresses(masters_only=True)) == ROUTE_BROKERS_MAX // 4

    asyncio.run(run())


class _SlowChecks:
    """Transactions whose checks take for ever."""

    async def answer_check(self, _: object, request: Command) -> None:
        if not request.ext_fields:
            raise BadRequest("the custom field <tranStateTableOffset> is missing", field="tranStateTableOffset")
        await asyncio.Event().wait()


@pytest.mark.parametrize(("body_bytes", "count_max"), [(0, CHECKS_MAX), (1 << 20, CHECK_BYTES_MAX >> 20)])
def test_transaction_checks_of_a_broker_are_bounded(body_bytes: int, count_max: int) -> None:
    async def run() -> None:
        requests = ServerRequests(cast(Any, None), "", cast(Any, _SlowChecks()), cast(Any, None))
        body = bytes(body_bytes)
        for _ in range(count_max + 100):
            answer = requests(cast(Any, None), Command(39, ext_fields={"a": "b"}, body=body))
            assert answer is NO_ANSWER
        assert len(requests._checks) == count_max
        await requests.stop()
        await asyncio.sleep(0)
        assert not requests._checks and not requests._check_bytes

    asyncio.run(run())


def test_malformed_transaction_checks_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        requests = ServerRequests(cast(Any, None), "", cast(Any, _SlowChecks()), cast(Any, None))
        for _ in range(1_000):
            requests(cast(Any, None), Command(39))
            await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert 0 < len(caplog.records) < 25 and not any(record.exc_info for record in caplog.records)


def test_integer_keys_of_old_servers_are_read_at_any_length_without_work() -> None:
    addresses = b",".join(b'%d:"127.0.0.1:1"' % number for number in range(100_000))
    body = b'{"brokerDatas":[{"brokerName":"b","brokerAddrs":{%b}}]}' % addresses
    assert steps_of(lambda: read_body(body)) < 100
    assert len(decode_body(TopicRoute, body).brokers[0].addresses) == 100_000


def test_digits_in_texts_are_no_keys() -> None:
    long = "n" * 20_000
    for text in ("a,1:b", "{2:", ",3:", "4:5"):
        body = b'{"brokerDatas":[{"brokerName":"%b","brokerAddrs":{0:"%b",-1:"z"}}]}' % (long.encode(), text.encode())
        (broker,) = decode_body(TopicRoute, body).brokers
        assert (broker.broker_name, broker.addresses) == (long, {0: text, -1: "z"})


def test_senseless_offsets_of_a_broker_are_refused_before_they_are_planned() -> None:
    shape = ClusterShape("b")
    ranges = [QueueRange(shape, "T", 0, 0, 10), QueueRange(shape, "T", 1, 0, 2**62)]
    with pytest.raises(OptionError, match=r"0 to 4611686018427387904 of queue 1 of T at b"):
        plan_tasks(ranges)


def test_answer_of_etcd_in_tiny_chunks_leaves_turns_to_others() -> None:
    async def run() -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 40_000)
            writer.write(b"100001\r\n")  # more than an answer may have
            await reader.read()
            writer.close()

        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        counting = asyncio.create_task(count_turns())
        with pytest.raises(WireError, match="chunk of 1048577 bytes"):
            await EtcdGateway([f"http://127.0.0.1:{port}"], timeout_s=30).call("/v3/kv/range", {})
        counting.cancel()
        server.close()
        await asyncio.sleep(0.05)
        return turns

    assert asyncio.run(run()) >= 400
