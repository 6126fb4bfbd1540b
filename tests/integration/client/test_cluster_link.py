"""Requests to brokers: long ones wait at the client, not at the server."""

from __future__ import annotations

import asyncio

import pytest

from orbitlog.client.connection.cluster_link import LONG_REQUESTS_AT_ONCE, ClusterLink
from orbitlog.errors import RequestTimeout
from orbitlog.remoting.connection import NO_ANSWER, Answer, Connection
from orbitlog.settings.limits import LONG_REQUESTS_PER_ADDRESS
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from tests.support.loops import run, serving


def ignore(_: Connection, __: Command) -> Answer:
    return NO_ANSWER


async def read_all(link: ClusterLink, address: str, count: int, code: RequestCode) -> None:
    await asyncio.gather(*(link.invoke(address, code) for _ in range(count)))


@pytest.mark.parametrize(
    ("code", "at_once"), [(RequestCode.GET_TOPIC_STATS_INFO, LONG_REQUESTS_AT_ONCE), (RequestCode.GET_MAX_OFFSET, 20)]
)
def test_tool_that_asks_in_parallel_has_few_long_requests_in_flight(code: RequestCode, at_once: int) -> None:
    """The console asks for the statistics of all topics on a page."""
    in_flight = in_flight_max = 0

    async def answer(request: Command) -> Command:
        nonlocal in_flight, in_flight_max
        in_flight += 1
        in_flight_max = max(in_flight_max, in_flight)
        await asyncio.sleep(0.005)
        in_flight -= 1
        return response_to(request, ResponseCode.SUCCESS)

    async def test() -> None:
        async with serving(lambda _, request: answer(request)) as server:
            host, port = server.address
            link = ClusterLink([], ignore)
            await read_all(link, f"{host}:{port}", 20, code)
            await link.close()

    assert LONG_REQUESTS_AT_ONCE < LONG_REQUESTS_PER_ADDRESS.default
    run(test(), plain=True)
    assert in_flight_max == at_once


def test_wait_for_earlier_long_requests_is_part_of_the_time() -> None:
    async def test() -> None:
        async with serving(lambda _, __: None) as server:
            host, port = server.address
            link = ClusterLink([], ignore)
            asked = [
                link.invoke(f"{host}:{port}", RequestCode.GET_CONSUME_STATS, seconds=0.2)
                for _ in range(LONG_REQUESTS_AT_ONCE + 1)
            ]
            for error in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(error, RequestTimeout)
            await link.close()

    run(test(), plain=True)
