"""Traces that our client writes, read by Apache's tool; and what our command makes of traces by Java's client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from orbitlog.client.connection.connect import connect
from tests.interop.harness.clients import Client
from tests.interop.harness.matrix import java_550_client

pytestmark = pytest.mark.interop

PROGRAM = Path(sys.executable).with_name("orbitlog")


def shown_by_us(client: Client, message_id: str) -> list[str]:
    command = [str(PROGRAM), "message", "trace", message_id, "--json", "-n", client.system.name_server_address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return [json.loads(line)["step"] for line in done.stdout.splitlines()]


@java_550_client
def test_their_tool_reads_ours(client: Client) -> None:
    topic, group = client.topic("OurTraces", queues=1), client.group("ourtraces")

    async def live() -> str:
        async with connect(client.system.name_server_address, trace=True) as mq:
            receipt = await mq.send(topic, "followed", keys=["k"])
            async for _ in mq.consume(topic, group=group, start_from="first"):
                break
            async with await mq.consume(topic, group=group + "2", start_from="first") as consumer:
                message = await consumer.next(60)
                assert message is not None
                await message.ack()
            return receipt.message_id

    message_id = asyncio.run(asyncio.wait_for(live(), 120))
    printed = ""

    def is_read() -> bool:
        nonlocal printed
        printed = client.mqadmin(f"queryMsgTraceById -i {message_id}")
        return "Pub" in printed and "Sub" in printed

    client.eventually(is_read, "the tool shows the send and the consumption")
    assert "success" in printed, printed


@java_550_client
def test_our_command_reads_theirs(client: Client) -> None:
    topic = client.topic("TheirTraces", queues=1)
    push = client.push(topic, client.group("theirtraces"), trace=True)
    [sent] = client.send(client.producer(trace=True), topic, body="followed", keys="k")
    push.wait_for(1)
    wanted = ["sent", "given to a consumer", "consumed"]
    client.eventually(lambda: shown_by_us(client, sent["msgId"]) == wanted, "the whole life of the message")
