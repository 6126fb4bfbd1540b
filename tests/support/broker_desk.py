"""A broker on a free port with a client, for tests that use it as any client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_opening import clock_ms
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.broker.tables.topics import NowMs
from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.send_headers import SendMessageRequest, SendMessageV2Request

TIMEOUT_S = 20.0
SMALL = {
    "mappedFileSizeCommitLog": str(1024 * 1024),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
}


@dataclass
class Desk:
    """One broker and one client of it; `heard` are the broker's requests to that client."""

    broker: Broker
    client: RemotingClient
    heard: list[Command]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.address[1]}"

    async def ask(self, code: int, body: bytes = b"", **ext_fields: object) -> Command:
        """Send a request with these extension fields."""
        fields = {name: str(value) for name, value in ext_fields.items()}
        return await self.client.invoke(self.address, Command(code, ext_fields=fields, body=body), TIMEOUT_S)

    async def send(
        self,
        topic: str = "Orders",
        body: bytes = b"hello",
        *,
        queue_id: int = 0,
        code: int = RequestCode.SEND_MESSAGE_V2,
        properties: dict[str, str] | None = None,
        **more: Any,
    ) -> Command:
        """Send a message."""
        is_first = code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
        kind = SendMessageRequest if is_first else SendMessageV2Request
        given = {"UNIQ_KEY": "7F00000100002A9F0000000000000001", "WAIT": "true", **(properties or {})}
        fields = {
            "producer_group": "P",
            "default_topic": "TBW102",
            "default_topic_queue_count": 4,
            "sys_flag": 0,
            "born_timestamp_ms": 1,
            "flag": 0,
            "properties": encode_properties(given).decode(),
            **more,
        }
        header = kind(topic=topic, queue_id=queue_id, **fields)
        return await self.client.invoke(
            self.address, Command(code, ext_fields=header.to_ext_fields(), body=body), TIMEOUT_S
        )

    async def pull(self, topic: str = "Orders", queue_id: int = 0, queue_offset: int = 0, **more: Any) -> Command:
        """Pull; by default without long polling, and with its own subscription."""
        fields: dict[str, Any] = {
            "group": "G",
            "message_count_max": 32,
            "sys_flag": 4,
            "commit_queue_offset": 0,
            "suspend_timeout_ms": 10_000,
            "subscription": "*",
            "subscription_version": 0,
            **more,
        }
        header = PullMessageRequest(topic=topic, queue_id=queue_id, queue_offset=queue_offset, **fields)
        command = Command(RequestCode.PULL_MESSAGE, ext_fields=header.to_ext_fields())
        return await self.client.invoke(self.address, command, TIMEOUT_S)

    async def heartbeat(
        self, group: str = "G", topics: tuple[str, ...] = ("Orders",), *, client_id: str = "one", **more: Any
    ) -> Command:
        """Register as a consumer of a group."""
        subscriptions = [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics]
        consumer = {"groupName": group, "subscriptionDataSet": subscriptions, **more}
        data = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "P"}]}
        return await self.ask(RequestCode.HEART_BEAT, write_body(data))


def records(answer: Command) -> list[Message]:
    """Decode the messages of a pull."""
    found: list[Message] = []
    position = 0
    while position < len(answer.body):
        found.append(decode_message(answer.body, position))
        position += found[-1].size_bytes
    return found


@asynccontextmanager
async def client_of(desk: Desk) -> AsyncIterator[Desk]:
    """Another client of the same broker."""
    heard: list[Command] = []
    client = RemotingClient(_listener(heard))
    try:
        yield Desk(desk.broker, client, heard)
    finally:
        await client.close()


def _listener(heard: list[Command]) -> Callable[[Connection, Command], Answer]:
    def take(_: Connection, request: Command) -> Answer:
        heard.append(request)
        return None

    return take


@asynccontextmanager
async def desk_at(root: Path, *, now_ms: NowMs = clock_ms, **settings: str) -> AsyncIterator[Desk]:
    """Start a broker on a store with small files; stop it when the block ends."""
    broker = Broker(BrokerSettings({**SMALL, "listenPort": "0", **settings}), root, now_ms=now_ms)
    heard: list[Command] = []
    client = RemotingClient(_listener(heard))
    try:
        await broker.start()
        yield Desk(broker, client, heard)
    finally:
        await client.close()
        await broker.stop()


def at_desk(root: Path, work: Callable[[Desk], Awaitable[None]], *, now_ms: NowMs = clock_ms, **settings: str) -> None:
    """Run one coroutine against a broker."""

    async def run() -> None:
        async with desk_at(root, now_ms=now_ms, **settings) as desk:
            await work(desk)

    asyncio.run(run())


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for a condition that becomes true soon."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_true():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.001)
