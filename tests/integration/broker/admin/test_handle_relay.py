"""Requests of tools that the broker relays to a client."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbitlog.wire.codes import RequestCode, ResponseCode
from tests.support.broker_desk import Desk, at_desk, client_of, until


def test_request_of_a_tool_is_relayed_to_the_client(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with client_of(desk) as other:
            await other.heartbeat(client_id="asked")
            asking = asyncio.ensure_future(
                desk.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="asked")
            )
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            await until(lambda: any(each.code == code for each in other.heard))
            asking.cancel()
        gone = await desk.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="nobody")
        assert gone.code == ResponseCode.SYSTEM_ERROR

    at_desk(tmp_path, work)
