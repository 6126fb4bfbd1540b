"""A broker with very many topics registers in parts with Apache's name servers, plain and compressed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from orbitlog.formats.tables.topic_config import TopicConfig
from tests.interop.harness.cluster import Ports, server_command, start_name_server
from tests.interop.harness.packages import ApachePackages
from tests.support.broker_desk import desk_at
from tests.support.raw_peer import RawPeer

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("nameserver")]

HOST = "127.0.0.1"
COUNT = 3_000


@pytest.fixture(scope="module", params=["4.9.7", "5.5.0"])
def name_server(
    request: pytest.FixtureRequest,
    packages_of: Callable[[str], ApachePackages],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("split")
    port = Ports.find().name_server
    server = start_name_server(server_command(packages_of(request.param), directory), directory, port)
    yield f"{HOST}:{port}"
    server.kill()


def queue_count(name_server: str, topic: str) -> int | None:
    """Return the number of queues in the route of a topic; None without a route."""
    with RawPeer(name_server) as peer:
        answer = peer.ask(105, {"topic": topic, "acceptStandardJsonOnly": "true"})
    if answer.code != 0:
        return None
    start = answer.body.index(b'"queueDatas":')
    queues = orjson.loads(answer.body[answer.body.index(b"[", start) : answer.body.index(b"]", start) + 1])
    return int(queues[0]["writeQueueNums"])


@pytest.mark.parametrize("compressed", ["false", "true"])
def test_all_parts_and_later_changes_are_known(name_server: str, compressed: str, tmp_path: Path) -> None:
    settings = {"namesrvAddr": name_server, "compressedRegister": compressed, "registerNameServerPeriod": "60000"}

    async def work() -> None:
        async with desk_at(tmp_path, **settings) as desk:
            topics, registration = desk.broker.state.topics, desk.broker._registration
            for number in range(COUNT):
                topics._topics[f"Many{number}"] = TopicConfig(f"Many{number}", 3, 3)
            topics.touch()
            await registration.register()
            for number in (0, 799, 800, 1_600, COUNT - 1):
                assert await asyncio.to_thread(queue_count, name_server, f"Many{number}") == 3
            topics.put(TopicConfig("Many5", 7, 7))
            topics.put(TopicConfig("OneMore", 2, 2))
            await registration.register()
            assert await asyncio.to_thread(queue_count, name_server, "Many5") == 7
            assert await asyncio.to_thread(queue_count, name_server, "OneMore") == 2
            assert await asyncio.to_thread(queue_count, name_server, "Many6") == 3

    asyncio.run(work())
