"""What operators ask of a running consumer, by way of its broker."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.running_info import RunningInfo
from orbitlog.errors import OrbitlogError
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.testing.running_broker import RunningBroker
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.client_bodies import ConsumeDirectlyResult
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.consume_headers import ConsumeDirectlyRequest, ConsumerRunningInfoRequest

SECONDS_MAX = 20


def test_operator_reads_running_info_and_sends_a_message_directly(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        link = ClusterLink([orbitlog_broker.address], lambda _, request: not_supported(request))
        async with orbitlog_broker.connect() as mq:
            receipt = await mq.send("Asked", "one")
            consumer = await mq.consume("Asked", group="asked", tags="never || ever")
            header = ConsumerRunningInfoRequest(group="asked", client_id=mq.client_id)
            answer = await link.invoke(orbitlog_broker.broker_address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            info = decode_body(RunningInfo, answer.body)
            assert {queue.topic for queue in info.queues} >= {"Asked"}
            assert "never || ever" in {each.expression for each in info.subscriptions}
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"

            results = []
            for word in ("CR_SUCCESS", "CR_LATER"):
                direct = ConsumeDirectlyRequest(
                    group="asked", client_id=mq.client_id, message_id=receipt.offset_message_id
                )
                asking = asyncio.create_task(
                    link.invoke(
                        orbitlog_broker.broker_address, RequestCode.CONSUME_MESSAGE_DIRECTLY, direct, seconds=12
                    )
                )
                message = await consumer.next(SECONDS_MAX)
                assert message is not None and message.text == "one"
                await (message.ack() if word == "CR_SUCCESS" else message.retry())
                results.append(decode_body(ConsumeDirectlyResult, (await asking).body).result)
            assert results == ["CR_SUCCESS", "CR_LATER"]
            assert await consumer.next(0.05) is None
        await link.close()

    asyncio.run(scenario())


def test_running_consumer_is_reset_to_the_first_offset(orbitlog_broker: RunningBroker) -> None:
    async def scenario() -> None:
        async with orbitlog_broker.connect() as mq:
            await mq.send("Again", "one")
            consumer = await mq.consume("Again", group="again", start_from="first")
            held = await consumer.next(SECONDS_MAX)
            assert held is not None
            with pytest.raises(OrbitlogError, match="would block the running event loop"):
                orbitlog_broker.lag("again")
            await mq.admin.reset_offsets("again", "Again", datetime.fromtimestamp(0, UTC))
            message = await consumer.next(SECONDS_MAX)
            assert message is not None and message.text == "one"
            await held.ack()  # stale: it must not settle the redelivered one
            assert await asyncio.to_thread(orbitlog_broker.lag, "again") == 1
            await message.ack()
            assert await asyncio.to_thread(orbitlog_broker.lag, "again") == 0

    asyncio.run(scenario())
