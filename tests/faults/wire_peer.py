"""A peer of a broker process, by raw requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from orbitlog.formats.records.message import Message, decode_message
from orbitlog.formats.records.properties import encode_properties
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.consume_headers import PullMessageRequest
from orbitlog.wire.send_headers import CheckTransactionRequest, SendMessageV2Request
from tests.faults.broker_process import SECONDS_MAX

PREPARED, COMMIT = 4, 8


@dataclass
class Peer:
    """A client that commits whatever it is asked about."""

    client: RemotingClient
    address: str
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> Command:
        command = Command(code, ext_fields={name: str(value) for name, value in fields.items()}, body=body)
        return await self.client.invoke(self.address, command, SECONDS_MAX)

    async def send(self, topic: str, body: str, *, sys_flag: int = 0, **properties: str) -> Command:
        unique_id = body.encode().hex().upper().zfill(32)
        header = SendMessageV2Request(
            producer_group="P",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_count=1,
            queue_id=0,
            sys_flag=sys_flag,
            born_timestamp_ms=int(time.time() * 1000),
            flag=0,
            properties=encode_properties({"UNIQ_KEY": unique_id, **properties}).decode(),
        )
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, body.encode(), **header.to_ext_fields())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def all_of(self, topic: str) -> list[Message]:
        found: list[Message] = []
        while True:
            header = PullMessageRequest(
                group="Reader",
                topic=topic,
                queue_id=0,
                queue_offset=len(found),
                message_count_max=32,
                sys_flag=4,
                commit_queue_offset=0,
                suspend_timeout_ms=0,
                subscription="*",
                subscription_version=0,
            )
            answer = await self.ask(RequestCode.PULL_MESSAGE, **header.to_ext_fields())
            if answer.code != ResponseCode.SUCCESS:
                return found
            found += _records(answer.body)

    def take(self, _: Connection, request: Command) -> Answer:
        if request.code == RequestCode.CHECK_TRANSACTION_STATE:
            header = CheckTransactionRequest.from_ext_fields(request.ext_fields)
            task = asyncio.get_running_loop().create_task(self.commit(header))
            self.tasks.add(task)
        return None

    async def commit(self, header: CheckTransactionRequest) -> None:
        await self.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            tranStateTableOffset=header.half_queue_offset,
            commitLogOffset=header.half_physical_offset,
            commitOrRollback=COMMIT,
            fromTransactionCheck="true",
        )


def _records(body: bytes) -> list[Message]:
    found: list[Message] = []
    position = 0
    while position < len(body):
        found.append(decode_message(body, position))
        position += found[-1].size_bytes
    return found


@asynccontextmanager
async def peer_of(address: str) -> AsyncIterator[Peer]:
    peers: list[Peer] = []
    client = RemotingClient(lambda connection, request: peers[0].take(connection, request))
    peers.append(Peer(client, address))
    try:
        yield peers[0]
    finally:
        await asyncio.gather(*peers[0].tasks, return_exceptions=True)
        await client.close()
