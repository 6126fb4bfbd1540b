"""Orbitlog's Python client at Apache's brokers, and beside Apache's clients: it must behave as at Orbitlog.

The scenarios are those of `tests/client`, which every run of the tests tries at our own broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitlog.access.credentials import Credentials
from orbitlog.client.connection.connect import connect
from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import BrokerRefused
from tests.integration.client import test_delivery_settling as words
from tests.integration.client import test_send_and_consume as sending
from tests.integration.client import test_transactions_and_replies as replies
from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_clients
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import (
    APACHE_497,
    APACHE_550,
    SYSTEM_KINDS,
    ApacheSystem,
    System,
    make_system,
    wanted_kinds,
)
from tests.support.send_ledger import Ledger

pytestmark = pytest.mark.interop

SECONDS_MAX = 60
# What it starts lives as long as the thread that started it, so that the threads of an event loop will not do.
STARTER = ThreadPoolExecutor(1)

SCENARIOS = [
    sending.test_sent_messages_are_consumed,
    sending.test_member_continues_at_the_committed_offset,
    sending.test_unacknowledged_message_is_redelivered,
    sending.test_two_members_share_the_queues,
    sending.test_tags,
    sending.test_in_order_by_key,
    sending.test_blocking_client_sends_and_consumes,
    replies.test_only_committed_messages_are_consumed,
    replies.test_a_request_is_answered,
    replies.test_reading_back_and_forth,
    replies.test_administration_returns_topics_groups_and_messages,
    words.test_loop_over_consume_joins_and_leaves_the_group,
    words.test_orderly_retry_blocks_its_queue_and_ends_in_dead_letters,
    words.test_failed_message_is_redelivered_with_its_topic,
    words.test_broadcasting_members_get_all_messages_and_keep_their_offsets,
    words.test_batch_is_acknowledged_when_the_next_is_requested,
    words.expressions_choose,
    replies.started_again_and_asked,
]


@pytest.fixture(params=wanted_kinds(SYSTEM_KINDS))
def system(request: pytest.FixtureRequest, system_of: Callable[[str], System]) -> System:
    return system_of(request.param)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_same_at_every_broker(system: System, scenario: Callable[[str], None]) -> None:
    scenario(f"rocketmq://{system.name_server_address}")


async def killed_and_started(system: System, ledger: Ledger, times: int) -> None:
    run = asyncio.get_running_loop().run_in_executor
    for _ in range(times):
        async with asyncio.timeout(SECONDS_MAX):
            count = len(ledger.sent)
            while len(ledger.sent) < count + 300:  # noqa: ASYNC110 - it is the others who act
                await asyncio.sleep(0.02)
        await run(STARTER, system.kill_broker)
        await run(STARTER, system.start)


@pytest.mark.parametrize("orderly", [False, True], ids=["side by side", "in order"])
def test_nothing_is_lost_when_brokers_are_killed(system: System, orderly: bool) -> None:
    """`kill -9` under load; what was acknowledged is consumed, and in order where order was asked for."""

    async def scenario() -> None:
        ledger = Ledger()
        topic = f"Killed{'InOrder' if orderly else ''}"
        address = f"rocketmq://{system.name_server_address}"
        async with connect(address) as mq, connect(address) as other:
            await mq.admin.create_topic(topic, 4)
            consumer = await other.consume(topic, group=f"{topic}-group", start_from="first", orderly=orderly)
            options = {"ordered_by": "one key"} if orderly else {}
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ledger.produce(mq, topic, **options))
                consuming = tasks.create_task(ledger.consume(consumer))
                await killed_and_started(system, ledger, 2)
                ledger.is_over = True
                await ledger.everything_came()
                consuming.cancel()
        if orderly:
            firsts = list(dict.fromkeys(ledger.seen))
            assert firsts == sorted(firsts)

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", wanted_kinds((APACHE_497, APACHE_550)))
def test_sends_and_consumers_continue_without_the_name_server(kind: str, system_of: Callable[[str], System]) -> None:
    """Ours is part of the broker's process there; `tests/integration/client/test_server_restarts.py` has it apart."""
    system = system_of(kind)
    assert isinstance(system, ApacheSystem)

    async def scenario() -> None:
        ledger, topic = Ledger(), "NobodyToAsk"
        address = f"rocketmq://{system.name_server_address}"
        run = asyncio.get_running_loop().run_in_executor
        async with connect(address) as mq, connect(address) as other:
            await mq.admin.create_topic(topic, 4)
            consumer = await other.consume(topic, group=f"{topic}-group", start_from="first")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(ledger.produce(mq, topic))
                consuming = tasks.create_task(ledger.consume(consumer))
                for step in (lambda: None, system.stop_name_server, system.start_name_server):
                    await run(STARTER, step)  # nothing at first: everybody shall have found the broker before
                    async with asyncio.timeout(SECONDS_MAX):
                        sent, seen = len(ledger.sent), len(ledger.seen)
                        while len(ledger.sent) < sent + 300 or len(ledger.seen) < seen + 300:  # noqa: ASYNC110
                            await asyncio.sleep(0.02)
                ledger.is_over = True
                await ledger.everything_came()
                consuming.cancel()

    asyncio.run(scenario())


async def take_for_ever(consumer: Consumer, seen: set[str]) -> None:
    async for message in consumer:
        seen.add(message.text)


@java_clients
def test_java_and_python_members_share_one_group(client: Client) -> None:
    topic, group = client.topic("Mixed", queues=8), client.group("mixed")
    producer = client.producer()

    async def queues_of(member: Consumer, count: int) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while len([queue for queue in member.queues if queue.topic == topic]) != count:  # noqa: ASYNC110 - others act
                await asyncio.sleep(0.1)

    async def arrive(mq: RocketMQ, seen: set[str], java: Callable[[], set[str]], body: str, count: int) -> set[str]:
        sent = {f"{body} {number}" for number in range(count)}
        for text in sorted(sent):
            await mq.send(topic, text)
        async with asyncio.timeout(SECONDS_MAX):
            while not sent <= seen | java():  # noqa: ASYNC110 - it is the others who act
                await asyncio.sleep(0.1)
        return sent

    async def scenario() -> None:
        seen: set[str] = set()
        run = asyncio.get_running_loop().run_in_executor
        async with connect(f"rocketmq://{client.system.name_server_address}") as mq:
            member = await mq.consume(topic, group=group, start_from="first")
            consuming = asyncio.create_task(take_for_ever(member, seen))
            alone = await arrive(mq, seen, set, "alone", 16)
            assert alone <= seen
            push = await run(None, lambda: client.push(topic, group))

            def java() -> set[str]:
                return {one["body"] for one in push.messages}

            await queues_of(member, 4)
            both = await arrive(mq, seen, java, "both", 64)
            assert both & seen and both & java(), "each has its share"
            await run(None, push.close)
            await queues_of(member, 8)
            assert await arrive(mq, seen, set, "alone again", 16) <= seen
            consuming.cancel()

    assert producer
    asyncio.run(scenario())


@java_clients
def test_mqadmin_looks_into_a_python_consumer(client: Client) -> None:
    topic, group = client.topic("Looked"), client.group("looked")

    async def scenario() -> None:
        run = asyncio.get_running_loop().run_in_executor
        async with connect(f"rocketmq://{client.system.name_server_address}") as mq:
            receipt = await mq.send(topic, "one")
            async with mq.consume(topic, group=group, tags="x || y", start_from="first"):
                command = f"consumerStatus -g {group} -i {mq.client_id}"
                told = await run(None, lambda: client.mqadmin(command))
                assert "PROP_CONSUMEORDERLY" in told and "x || y" in told, told
                listed = await run(None, lambda: client.mqadmin(f"consumerConnection -g {group}"))
                assert mq.client_id in listed and "PYTHON" in listed, listed
            assert receipt.queue.topic == topic

    asyncio.run(scenario())


def test_a_new_group_may_begin_at_the_end(system: System) -> None:
    """4.9 answers 0 for an unknown group while the queue has its first message; 5.x has a request for it."""

    async def scenario() -> None:
        async with connect(f"rocketmq://{system.name_server_address}") as mq:
            await mq.admin.create_topic("AtTheEnd", 1)
            await mq.send("AtTheEnd", "before")
            async with mq.consume("AtTheEnd", group="at-the-end") as consumer:
                await mq.send("AtTheEnd", "after")
                message = await consumer.next(SECONDS_MAX)
                assert message is not None
                assert message.text == ("before" if system.kind == APACHE_497 else "after")

    asyncio.run(scenario())


ACCOUNTS = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: producers
  secretKey: 12345678
  admin: true
- accessKey: strangers
  secretKey: 12345678
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""


def test_signed_requests_are_let_in(packages_of: Callable[[str], ApachePackages], tmp_path: Path) -> None:
    """Access control of 4.9: who signs is let in, as far as it may; who does not is refused with a reason."""
    system = make_system(APACHE_497, tmp_path, packages_of, {"aclEnable": "true"})
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    system.start()

    async def scenario() -> None:
        address = f"rocketmq://{system.name_server_address}"
        async with connect(address, credentials=Credentials("producers", "12345678")) as mq:
            await mq.admin.create_topic("Guarded", 1)
            await mq.send("Guarded", "ünsigned no more", properties={"colour": "grün"})
            _, outcome = await mq.send_in_transaction("Guarded", "paid", lambda _: True)
            assert outcome
            async with mq.consume("Guarded", group="guards", start_from="first") as consumer:
                taken = {(await take_one(consumer)), (await take_one(consumer))}
                assert taken == {"ünsigned no more", "paid"}
        for credentials in (None, Credentials("producers", "wrong secret"), Credentials("strangers", "12345678")):
            async with connect(address, credentials=credentials) as mq:
                with pytest.raises(BrokerRefused, match="AclException"):
                    await mq.send("Guarded", "two", timeout=5)

    try:
        asyncio.run(scenario())
    finally:
        system.kill()


async def take_one(consumer: Consumer) -> str:
    message = await consumer.next(SECONDS_MAX)
    assert message is not None
    await message.ack()
    return message.text
