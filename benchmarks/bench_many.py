"""Longest step of the event loop of a broker and a name server with very many topics, groups and queues.

The processor time of every callback of the loop is measured while the broker registers its topics, saves its tables,
answers statistics and whole tables, pops from a wide topic, indexes messages with many keys and starts. The figure is
the longest one: no other request is served meanwhile. Processor time, unlike elapsed time, does not depend on other
processes.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Reading, Report
from orbitlog.broker.runtime.broker_node import Broker
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.cli.serve.serving import ShortCollections
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.formats.tables.topic_config import TopicConfig
from orbitlog.nameserver.name_server import NameServer
from orbitlog.nameserver.nameserver_settings import NameServerSettings
from orbitlog.observe.exposition import PROMETHEUS
from orbitlog.remoting.client import RemotingClient
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

_LIMIT_S = 0.05
_WIDE = "Wide"
_SECONDS_MAX = 120.0
_SEND = {"a": "p", "b": _WIDE, "c": "TBW102", "d": "4", "f": "0", "g": "1", "h": "0"}
_POP = {"topic": _WIDE, "queueId": "-1", "maxMsgNums": "32", "invisibleTime": "10000", "bornTime": "0", "initMode": "0"}
_KEYED_MESSAGES = 64
_KEYS = "KEYS\x01" + " ".join(f"{number:x}" for number in range(7_000)) + "\x02"

Work = Callable[[], Awaitable[object]]


class _Longest:
    seconds = 0.0


@contextmanager
def _timed_loop() -> Iterator[_Longest]:
    """Measure every callback of asyncio's event loop; it must not be uvloop's."""
    longest, run = _Longest(), asyncio.Handle._run

    def timed(self: asyncio.Handle) -> None:
        start = time.thread_time()
        run(self)
        longest.seconds = max(longest.seconds, time.thread_time() - start)

    asyncio.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield longest
    finally:
        asyncio.Handle._run = run  # type: ignore[method-assign]


def run(report: Report, *, topics: int, groups: int, queues: int) -> None:
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        asyncio.run(_Bench(report, Path(directory), topics, groups, queues).run())


class _Bench:
    """A broker with many topics, the name server that it registers with, and a client of both."""

    def __init__(self, report: Report, root: Path, topics: int, groups: int, queues: int) -> None:
        self._report = report
        self._root = root
        self._topics, self._groups, self._queues = topics, groups, queues
        self._used = queues // 6  # each has an open file
        self._group = (
            f"longest loop step with {topics:,} topics, {groups:,} groups, {queues:,} queues in one topic,"
            f" {self._used:,} of them used"
        )
        self._server = NameServer(NameServerSettings(listen_port=0))
        self._client = RemotingClient()

    async def run(self) -> None:
        await self._server.start()
        broker = await self._started()
        self._fill(broker)
        gc.freeze()  # as a server does once its tables are loaded: a full collection of them would take 100 ms
        gc.callbacks.append(ShortCollections())  # and whenever they have grown
        await self._measure(self._works(broker))
        await self._use_queues(broker)
        await self._measure(self._works_on_used_queues(broker))
        await broker.stop()
        with _timed_loop() as longest:
            broker = await self._started()
        self._read("start with used queues", longest.seconds)
        await self._client.close()
        await broker.stop()
        await self._server.stop()

    async def _started(self) -> Broker:
        texts = {
            "listenPort": "0",
            "namesrvAddr": f"127.0.0.1:{self._server.address[1]}",
            "mappedFileSizeConsumeQueue": "20000",
            "topicsMax": str(2 * self._topics + 1_000),
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": "0",
        }
        broker = Broker(BrokerSettings(texts), self._root)
        await broker.start()
        return broker

    async def _ask(self, broker: Broker, code: RequestCode, body: bytes = b"", **fields: str) -> Command:
        address = f"127.0.0.1:{broker.address[1]}"
        return await self._client.invoke(address, Command(code, ext_fields=fields, body=body), _SECONDS_MAX)

    async def _measure(self, works: dict[str, Work]) -> None:
        for name, work in works.items():
            with _timed_loop() as longest:
                await work()
            self._read(name, longest.seconds)

    def _read(self, name: str, seconds: float) -> None:
        self._report.read(Reading(self._group, name, seconds, "s", _LIMIT_S))

    def _works(self, broker: Broker) -> dict[str, Work]:
        ask, name_server = self._ask, f"127.0.0.1:{self._server.address[1]}"
        route = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T5"})
        every = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return {
            "registration": broker._registration.register,
            "route": lambda: self._client.invoke(name_server, route, _SECONDS_MAX),
            "list of all topics (206)": lambda: self._client.invoke(name_server, every, _SECONDS_MAX),
            "saving of topics and groups": broker._saver.save_tables,
            "saving of offsets": broker._saver.save_offsets,
            "all topics (21)": lambda: ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG),
            "all offsets (43)": lambda: ask(broker, RequestCode.GET_ALL_CONSUMER_OFFSET),
            "all groups (201)": lambda: ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
            "statistics of a topic (202)": lambda: ask(broker, RequestCode.GET_TOPIC_STATS_INFO, topic=_WIDE),
            "statistics of a group (208)": lambda: ask(
                broker, RequestCode.GET_CONSUME_STATS, consumerGroup="g1", topic=_WIDE
            ),
            "statistics of all groups (317)": lambda: ask(
                broker, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"
            ),
            "pop of empty queues": lambda: self._pop(broker, "new", "0"),
            "scrape of metrics": lambda: _scrape(broker),
        }

    def _works_on_used_queues(self, broker: Broker) -> dict[str, Work]:
        return {
            "pop of used queues": lambda: self._pop(broker, "new", "0"),
            "pop of used queues without a message": lambda: self._pop(broker, "ended", "1500"),
            "index of messages with many keys": lambda: self._send_keyed(broker),
        }

    async def _pop(self, broker: Broker, group: str, poll_ms: str) -> None:
        await self._ask(broker, RequestCode.POP_MESSAGE, consumerGroup=group, pollTime=poll_ms, **_POP)

    async def _send_keyed(self, broker: Broker) -> None:
        fields = {**_SEND, "b": "Keyed", "e": "0", "i": _KEYS}
        send = RequestCode.SEND_MESSAGE_V2
        await asyncio.gather(*(self._ask(broker, send, b"body", **fields) for _ in range(_KEYED_MESSAGES)))
        await _dispatched(broker)

    async def _use_queues(self, broker: Broker) -> None:
        for first in range(0, self._used, 500):
            sends = (
                self._ask(broker, RequestCode.SEND_MESSAGE_V2, b"body", **_SEND, e=str(queue_id), i="")
                for queue_id in range(first, min(first + 500, self._used))
            )
            await asyncio.gather(*sends)
        await _dispatched(broker)
        for queue_id in range(self._used):
            broker.state.offsets.commit(_WIDE, "ended", queue_id, 1)

    def _fill(self, broker: Broker) -> None:
        state, topics, groups = broker.state, self._topics, self._groups
        state.topics._topics.update({f"T{number}": TopicConfig(f"T{number}", 4, 4) for number in range(topics)})
        state.topics._topics[_WIDE] = TopicConfig(_WIDE, self._queues, self._queues)
        state.groups._groups.update({f"g{number}": GroupConfig(f"g{number}") for number in range(groups)})
        for number in range(groups):
            state.offsets.commit(f"T{number % topics}", f"g{number}", 0, 1)
        for queue_id in range(self._queues):
            state.offsets.commit(_WIDE, "g1", queue_id, 0)
        state.topics.touch()


async def _scrape(broker: Broker) -> None:
    meters = broker._listeners.meters
    assert meters is not None
    async for _ in meters.exposition.pieces(PROMETHEUS):
        pass


async def _dispatched(broker: Broker) -> None:
    store = broker.state.store
    while store.dispatched_to < store.written_to:  # noqa: ASYNC110 - the store has no event for it
        await asyncio.sleep(0.01)
