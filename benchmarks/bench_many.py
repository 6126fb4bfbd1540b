"""Longest step of the event loop of a broker and a name server with very many topics, groups and queues.

Every callback of the loop is timed while the broker registers its topics, saves its tables, answers statistics and pops
from a wide topic. The figure is the longest one: no other request is served meanwhile.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Reading, Report
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

_LIMIT_S = 0.05
_WIDE = "Wide"
_SECONDS_MAX = 120.0


class _Longest:
    seconds = 0.0


@contextmanager
def _timed_loop() -> Iterator[_Longest]:
    """Time every callback of asyncio's event loop; it must not be uvloop's."""
    longest, run = _Longest(), asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        start = time.perf_counter()
        run(self)
        longest.seconds = max(longest.seconds, time.perf_counter() - start)

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


def run(report: Report, *, topics: int, groups: int, queues: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        asyncio.run(_run(report, Path(directory), topics, groups, queues))


async def _run(report: Report, root: Path, topics: int, groups: int, queues: int) -> None:
    group = f"longest loop step with {topics:,} topics, {groups:,} groups, {queues:,} queues in one topic"
    server = NameServer(NameServerSettings(listen_port=0))
    await server.start()
    texts = {"listenPort": "0", "namesrvAddr": f"127.0.0.1:{server.address[1]}"}
    broker, client = Broker(BrokerSettings(texts), root), RemotingClient()
    await broker.start()
    _fill(broker, topics, groups, queues)
    address = f"127.0.0.1:{broker.address[1]}"

    async def ask(code: RequestCode, **fields: str) -> None:
        await client.invoke(address, Command(code, ext_fields=fields), _SECONDS_MAX)

    name_server = f"127.0.0.1:{server.address[1]}"
    pop = {"consumerGroup": "new", "topic": _WIDE, "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "10000"}
    works: dict[str, Callable[[], Awaitable[object]]] = {
        "registration": broker._registration.register,
        "route": lambda: client.invoke(name_server, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T5"})),
        "saving of topics and groups": broker._saver.save_tables,
        "saving of offsets": broker._saver.save_offsets,
        "statistics of a topic (202)": lambda: ask(RequestCode.GET_TOPIC_STATS_INFO, topic=_WIDE),
        "statistics of a group (208)": lambda: ask(RequestCode.GET_CONSUME_STATS, consumerGroup="g1", topic=_WIDE),
        "statistics of all groups (317)": lambda: ask(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"),
        "pop": lambda: ask(RequestCode.POP_MESSAGE, **pop, pollTime="0", bornTime="0", initMode="0"),
    }
    for name, work in works.items():
        with _timed_loop() as longest:
            await work()
        report.read(Reading(group, name, longest.seconds, "s", _LIMIT_S))
    await client.close()
    await broker.stop()
    await server.stop()


def _fill(broker: Broker, topics: int, groups: int, queues: int) -> None:
    state = broker.state
    state.topics._topics.update({f"T{number}": TopicConfig(f"T{number}", 4, 4) for number in range(topics)})
    state.topics._topics[_WIDE] = TopicConfig(_WIDE, queues, queues)
    state.groups._groups.update({f"g{number}": GroupConfig(f"g{number}") for number in range(groups)})
    for number in range(groups):
        state.offsets.commit(f"T{number % topics}", f"g{number}", 0, 1)
    for queue_id in range(queues):
        state.offsets.commit(_WIDE, "g1", queue_id, 0)
    state.topics.touch()
