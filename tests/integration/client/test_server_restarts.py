"""The client during restarts of brokers and name servers: no message is lost, and no call hangs."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

import orbitlog
from orbitlog.errors import BrokerRefused, ClientClosed, ConnectFailed, RemotingError
from orbitlog.testing.running_broker import RunningBroker
from tests.support.send_ledger import SECONDS_MAX, Ledger


async def trouble(broker: RunningBroker, ledger: Ledger) -> None:
    """Restart the broker, at its port and at another, and take the name server away for a while."""
    run = asyncio.get_running_loop().run_in_executor
    for step in (
        broker.restart_broker,
        broker.stop_name_server,
        broker.start_name_server,
        lambda: broker.restart_broker(port=0),
        broker.restart_broker,
    ):
        count = len(ledger.sent)
        await run(None, step)
        async with asyncio.timeout(SECONDS_MAX):
            while len(ledger.sent) < count + 50:  # noqa: ASYNC110 - it is the others who act
                await asyncio.sleep(0.01)


def test_no_message_is_lost_when_servers_are_restarted(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        ledger = Ledger()
        async with orbitlog_broker.connect() as mq, orbitlog_broker.connect() as other:
            consumer = await other.consume("Restarted", group="going-on", start_from="first")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ledger.produce(mq, "Restarted"))
                consuming = tasks.create_task(ledger.consume(consumer))
                await trouble(orbitlog_broker, ledger)
                ledger.is_over = True
                await ledger.everything_came()
                consuming.cancel()

    asyncio.run(scenario())


def test_order_is_kept_when_brokers_are_restarted(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        ledger = Ledger()
        async with orbitlog_broker.connect() as mq, orbitlog_broker.connect() as other:
            consumer = await other.consume("InLine", group="in-line", start_from="first", orderly=True)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ledger.produce(mq, "InLine", ordered_by="one key"))
                consuming = tasks.create_task(ledger.consume(consumer))
                await trouble(orbitlog_broker, ledger)
                ledger.is_over = True
                await ledger.everything_came()
                consuming.cancel()
        # A redelivered message after a restart is allowed, one that overtakes another is not.
        firsts = list(dict.fromkeys(ledger.seen))
        assert firsts == sorted(firsts)

    asyncio.run(scenario())


def test_close_returns_if_all_servers_are_down(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(SECONDS_MAX), orbitlog_broker.connect() as mq:
            await mq.send("Gone", "one")
            consumer = await mq.consume("Gone", group="left-behind", start_from="first", orderly=True)
            assert await consumer.next(SECONDS_MAX) is not None
            run = asyncio.get_running_loop().run_in_executor
            await run(None, orbitlog_broker.stop_broker)
            await run(None, orbitlog_broker.stop_name_server)
            with pytest.raises(ConnectFailed):
                await mq.send("Gone", "two", timeout=0.2)
        with pytest.raises(ClientClosed):
            await mq.send("Gone", "three")
        with pytest.raises(ClientClosed):
            await mq.consume("Gone", group="others")
        with pytest.raises(ClientClosed):
            await mq.read("Gone")
        assert await consumer.next() is None

    asyncio.run(scenario())


def test_close_returns_if_traces_cannot_be_sent(
    orbitlog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orbitlog.client.producer.tracing.CLOSE_SECONDS", 0.2)
    monkeypatch.setattr("orbitlog.client.producer.tracing.SEND_SECONDS", 600.0)

    async def scenario() -> None:
        async with asyncio.timeout(SECONDS_MAX), orbitlog_broker.connect(trace=True) as mq:
            await mq.send("Traced", "one")
            run = asyncio.get_running_loop().run_in_executor
            await run(None, orbitlog_broker.stop_broker)
            await run(None, orbitlog_broker.stop_name_server)

    asyncio.run(scenario())
    assert "dropped the last trace records" in caplog.text


def test_close_returns_if_a_broker_does_not_answer(
    orbitlog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that accepts connections and never answers, like a stopped process."""
    monkeypatch.setattr("orbitlog.client.consumer.group_consumer.CLOSE_SECONDS", 0.5)

    async def scenario() -> None:
        async with asyncio.timeout(SECONDS_MAX), orbitlog_broker.connect() as mq:
            await mq.send("Silent", "one")
            consumer = await mq.consume("Silent", group="unheard", start_from="first", orderly=True)
            message = await consumer.next(SECONDS_MAX)
            assert message is not None
            host, _, port = orbitlog_broker.broker_address.rpartition(":")
            await asyncio.get_running_loop().run_in_executor(None, orbitlog_broker.stop_broker)
            with socket.create_server((host, int(port))):
                with pytest.raises(RemotingError):
                    await mq.send("Silent", "two", timeout=0.2)
                await message.ack()
                await consumer.close()

    asyncio.run(scenario())


def test_close_waits_for_sends_in_flight(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        async with orbitlog_broker.connect() as mq:
            await mq.send("OnItsWay", "first")
            sends = [asyncio.create_task(mq.send("OnItsWay", f"waited {number}")) for number in range(200)]
            await asyncio.sleep(0)
            for number in range(200):
                await mq.send_oneway("OnItsWay", f"oneway {number}")
        receipts = await asyncio.gather(*sends)
        assert len({(each.queue, each.queue_offset) for each in receipts}) == 200
        async with orbitlog_broker.connect() as mq:
            offsets = await mq.admin.topic_offsets("OnItsWay")
            assert sum(each.max_queue_offset for each in offsets.values()) == 401

    asyncio.run(scenario())


def test_members_that_join_and_leave_consume_all_messages(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        ledger = Ledger()
        chance = random.Random(7)
        async with orbitlog_broker.connect() as mq, orbitlog_broker.connect() as other:
            steady = await other.consume("Crowd", group="crowd", start_from="first")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ledger.produce(mq, "Crowd"))
                consuming = tasks.create_task(ledger.consume(steady))
                for _ in range(6):
                    async with (
                        orbitlog_broker.connect() as guest,
                        guest.consume("Crowd", group="crowd", start_from="first") as member,
                    ):
                        for _ in range(chance.randrange(1, 20)):
                            message = await member.next(1)
                            if message is not None:
                                ledger.seen.append(int(message.text))
                                await message.ack()
                ledger.is_over = True
                await ledger.everything_came()
                consuming.cancel()

    asyncio.run(scenario())


def test_broker_address_as_name_server_is_reported(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        async with orbitlog.connect(orbitlog_broker.broker_address) as mq:
            with pytest.raises(BrokerRefused, match=r"is 127\.0\.0\.1:\d+ a name server\?"):
                await mq.send("Orders", "one")

    asyncio.run(scenario())


def test_close_waits_for_a_consumer_that_is_leaving(
    orbitlog_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with orbitlog_broker.connect() as mq:
            await mq.admin.create_topic("Leaving", 512)  # revoking this many queues takes a while
            consumer = await mq.consume("Leaving", group="leaving", start_from="first")
            leaving = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
        assert leaving.done()

    asyncio.run(scenario())
    assert "could not commit" not in caplog.text
