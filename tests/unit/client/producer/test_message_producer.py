"""Sends when brokers fail: another broker, the same one later, or an error with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from orbitlog.client.connection.error_advice import refusal
from orbitlog.client.connection.routes import Routes
from orbitlog.client.producer.message_producer import Producer
from orbitlog.client.producer.outgoing import make_outgoing
from orbitlog.client.producer.receipts import SendStatus
from orbitlog.errors import (
    BrokerRefused,
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    NoBroker,
    NoRoute,
    OrbitlogError,
    RequestTimeout,
)
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.send_headers import SendMessageResponse
from tests.support.fake_name_server import NameServer

STORED = SendMessageResponse("7F00000100002A9F0000000000000000", 0, 5)


class Brokers(NameServer):
    """Brokers that give the answers of a test in turn; then success."""

    def __init__(self, *brokers: str, answers: Sequence[OrbitlogError | int] = ()) -> None:
        super().__init__({"Orders": {name: f"{name}:1" for name in brokers}})
        self.answers = list(answers)
        self.tried: list[str] = []

    async def invoke(self, address: str, code: RequestCode, header: Any, body: bytes, **options: Any) -> Command:
        self.tried.append(address)
        answer = self.answers.pop(0) if self.answers else ResponseCode.SUCCESS
        if isinstance(answer, OrbitlogError):
            raise answer
        command = Command(answer, ext_fields=STORED.to_ext_fields(), remark="told so")
        if answer not in options["accept"]:
            raise refusal(command)
        return command


def send(brokers: Brokers, **options: Any) -> Any:
    async def scenario() -> Any:
        producer = Producer(brokers, Routes(brokers), "group")  # type: ignore[arg-type]
        return await producer.send(make_outgoing("Orders", "one", "ID"), **{"seconds": 3.0, **options})

    return asyncio.run(scenario())


@pytest.mark.parametrize("failure", [ConnectionLost("gone"), RequestTimeout("late"), ResponseCode.SYSTEM_BUSY])
def test_another_broker_is_tried(failure: OrbitlogError | int) -> None:
    brokers = Brokers("a", "b", answers=[failure])
    receipt = send(brokers)
    assert receipt.status is SendStatus.SENT and receipt.queue_offset == 5
    assert len(set(brokers.tried)) == 2


def test_a_broker_that_cannot_be_connected_to_is_tried_until_it_is_back() -> None:
    brokers = Brokers("a", answers=[ConnectFailed("down")] * 5)
    assert send(brokers).status is SendStatus.SENT
    assert len(brokers.tried) == 6
    with pytest.raises(ConnectFailed):
        send(Brokers("a", answers=[ConnectFailed("down")] * 50), seconds=0.3)


def test_what_may_be_stored_already_is_tried_three_times_at_most() -> None:
    brokers = Brokers("a", answers=[ConnectionLost("gone")] * 9)
    with pytest.raises(ConnectionLost):
        send(brokers)
    assert len(brokers.tried) == 3


def test_refusal_that_will_not_change_is_reported_at_once() -> None:
    brokers = Brokers("a", "b", answers=[ResponseCode.MESSAGE_ILLEGAL])
    with pytest.raises(BrokerRefused, match=r"told so \(code 13\); the message is over a limit") as caught:
        send(brokers)
    assert not caught.value.retriable and len(brokers.tried) == 1


def test_an_address_that_another_server_has_now_is_worth_another_try() -> None:
    brokers = Brokers("a", answers=[ResponseCode.REQUEST_CODE_NOT_SUPPORTED])
    assert send(brokers).status is SendStatus.SENT and len(brokers.tried) == 2
    with pytest.raises(NoRoute, match="a:1 is no longer broker a: told so") as caught:
        send(Brokers("a", answers=[ResponseCode.REQUEST_CODE_NOT_SUPPORTED] * 9))
    assert caught.value.retriable


def test_timeout_raises_the_last_failure() -> None:
    class Vanished(Brokers):
        async def invoke_name_server(self, *_: Any, **__: Any) -> Command:
            if self.tried:
                await asyncio.Event().wait()  # never answers
            return await super().invoke_name_server(*_, **__)

    brokers = Vanished("a", answers=[ConnectFailed("down")] * 9)
    with pytest.raises(ConnectFailed, match="down"):
        send(brokers, seconds=0.1)
    assert len(brokers.tried) == 1, "asking where it is took all the time that there was"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.NOT_YET_ON_DISK),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.NO_REPLICA),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.NOT_YET_REPLICATED),
    ],
)
def test_what_is_stored_less_safely_is_stored(code: int, status: SendStatus) -> None:
    brokers = Brokers("a", answers=[code])
    assert send(brokers).status is status and len(brokers.tried) == 1


def test_an_ordered_message_goes_to_no_other_queue() -> None:
    brokers = Brokers("a", "b", answers=[ConnectionLost("gone")] * 2)
    send(brokers, ordered_by="key")
    assert len(set(brokers.tried)) == 1


def test_nothing_is_sent_after_the_end() -> None:
    async def scenario() -> None:
        producer = Producer(Brokers("a"), Routes(Brokers("a")), "group")  # type: ignore[arg-type]
        await producer.finish(1)
        with pytest.raises(ClientClosed):
            await producer.send(make_outgoing("Orders", "one", "ID"), seconds=1)
        with pytest.raises(ClientClosed):
            await producer.send_oneway(make_outgoing("Orders", "one", "ID"))

    asyncio.run(scenario())


def test_large_bodies_are_compressed_and_stay_so_when_tried_again() -> None:
    sizes: list[int] = []

    class Measuring(Brokers):
        async def invoke(self, address: str, code: RequestCode, header: Any, body: bytes, **options: Any) -> Command:
            sizes.append(len(body))
            assert header.sys_flag == 0x301
            return await super().invoke(address, code, header, body, **options)

    async def scenario(size: int) -> None:
        brokers = Measuring("a", answers=[ConnectionLost("gone")])
        producer = Producer(brokers, Routes(brokers), "group")  # type: ignore[arg-type]
        await producer.send(make_outgoing("Orders", bytes(size), "ID"), seconds=3)

    for size in (4096, 300_000):
        asyncio.run(scenario(size))
    assert sizes[0] == sizes[1] < 100 and sizes[2] == sizes[3] < 1000


def test_a_send_waits_for_brokers_that_have_not_registered_yet() -> None:
    """A name server that has just started knows no broker; one that knows brokers knows which topics exist."""

    async def scenario() -> None:
        brokers = Brokers("a")
        topics, brokers.topics = brokers.topics, {}
        producer = Producer(brokers, Routes(brokers), "group")  # type: ignore[arg-type]
        task = asyncio.create_task(producer.send(make_outgoing("Orders", "one", "ID"), seconds=60.0))
        while len(brokers.requested) < 12:  # noqa: ASYNC110 - more often than a send tries what may have been done
            await asyncio.sleep(0)
        brokers.topics = topics
        assert (await task).status is SendStatus.SENT
        brokers.topics = {}
        with pytest.raises(NoBroker, match="no broker has registered with ns:9876"):
            await producer.send(make_outgoing("Others", "one", "ID"), seconds=0.01)
        brokers.topics = topics
        with pytest.raises(NoRoute, match="automatic topic creation is disabled"):
            await producer.send(make_outgoing("Others", "one", "ID"), seconds=60.0)

    asyncio.run(scenario())
