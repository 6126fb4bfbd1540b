"""Request and reply: the reply reaches the client that asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitlog.broker.sending.handle_reply import REPLY_TO_CLIENT
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.send_headers import PushReplyRequest
from tests.support.broker_desk import Desk, at_desk, client_of, until

TOPIC = "DefaultCluster_REPLY_TOPIC"


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
def test_reply_is_pushed_to_the_requester(tmp_path: Path, code: int) -> None:
    pushed: list[Command] = []

    def take(_: Connection, request: Command) -> Answer:
        pushed.append(request)
        return response_to(request, ResponseCode.SUCCESS)

    async def work(desk: Desk) -> None:
        asker = Desk(desk.broker, RemotingClient(take), [])
        await asker.heartbeat(client_id="asker")
        properties = {REPLY_TO_CLIENT: "asker", "CORRELATION_ID": "c1", "MSG_TYPE": "reply"}
        answer = await desk.send(TOPIC, b"pong", code=code, properties=properties)
        await asker.client.close()
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.ext_fields["queueOffset"] == "0" and len(answer.ext_fields["msgId"]) == 32
        (request,) = [each for each in pushed if each.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT]
        header = PushReplyRequest.from_ext_fields(request.ext_fields)
        assert (header.topic, request.body) == (TOPIC, b"pong")
        assert "CORRELATION_ID\x01c1\x02" in str(header.properties)

    at_desk(tmp_path, work)


def test_reply_without_a_connected_requester_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        gone = await desk.send(TOPIC, code=RequestCode.SEND_REPLY_MESSAGE_V2, properties={REPLY_TO_CLIENT: "gone"})
        assert gone.code == ResponseCode.SYSTEM_ERROR
        assert gone.remark == "push reply message fail, channel of <gone> not found."
        refused = await desk.send(TOPIC, code=RequestCode.SEND_REPLY_MESSAGE_V2)
        assert refused.code == ResponseCode.SYSTEM_ERROR and "is null" in str(refused.remark)

    at_desk(tmp_path, work)


def test_reply_to_a_requester_that_disconnects_is_refused(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with client_of(desk) as asker:  # it never answers
            await asker.heartbeat(client_id="asker")
            reply = asyncio.create_task(
                desk.send(TOPIC, code=RequestCode.SEND_REPLY_MESSAGE_V2, properties={REPLY_TO_CLIENT: "asker"})
            )
            await until(lambda: any(each.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT for each in asker.heard))
        assert (await reply).code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)
