"""Ends of queues: reads minimum and maximum offsets of topics at a bounded rate, topics on screen first.

One request is needed for each topic and broker, so a cluster with thousands of topics is read over several rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from orbitlog.client.admin.broker_admin import BrokerAdmin
from orbitlog.console.sources.cluster_sample import BrokerSample, Part
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.errors import OrbitlogError
from orbitlog.wire.bodies.queue_bodies import TopicStats

Key = tuple[str, str]
REQUESTS_AT_ONCE = 16


class TopicEnds:
    """The ends of all queues that were read so far, by broker name and topic."""

    def __init__(self, brokers: BrokerAdmin, now_ms: Callable[[], int]) -> None:
        self._admin = brokers
        self._now_ms = now_ms
        self._parts: dict[Key, Part[TopicStats]] = {}
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    @property
    def parts(self) -> Mapping[Key, Part[TopicStats]]:
        return self._parts

    def keep(self, brokers: Iterable[BrokerSample]) -> None:
        """Forget topics that no broker has any longer."""
        existing = {(broker.name, topic) for broker in brokers for topic in broker.topics.value or ()}
        for key in [key for key in self._parts if key not in existing]:
            del self._parts[key]

    async def read(self, brokers: Iterable[BrokerSample], topics: Iterable[str], age_max_ms: int) -> None:
        """Read the ends of these topics at every broker that has them, unless they are recent enough."""
        oldest_ms = self._now_ms() - age_max_ms
        wanted = set(topics)
        await asyncio.gather(
            *(
                self._read(broker, topic)
                for broker in brokers
                for topic in wanted & (broker.topics.value or {}).keys()
                if self._age(broker.name, topic) < oldest_ms
            )
        )

    def oldest(self, brokers: Iterable[BrokerSample], count: int, age_max_ms: int) -> list[tuple[BrokerSample, str]]:
        """Return topics whose ends were read longest ago, at most `count`."""
        oldest_ms = self._now_ms() - age_max_ms
        due = [
            (self._age(broker.name, topic), broker.name, topic, broker)
            for broker in brokers
            for topic in broker.topics.value or ()
        ]
        due.sort(key=lambda entry: entry[:3])
        return [(broker, topic) for at_ms, _, topic, broker in due[:count] if at_ms < oldest_ms]

    async def read_each(self, pairs: Iterable[tuple[BrokerSample, str]]) -> None:
        await asyncio.gather(*(self._read(broker, topic) for broker, topic in pairs))

    def _age(self, broker_name: str, topic: str) -> int:
        part = self._parts.get((broker_name, topic))
        return 0 if part is None or part.as_of_ms is None else part.as_of_ms

    async def _read(self, broker: BrokerSample, topic: str) -> None:
        key = broker.name, topic
        async with self._slots:
            try:
                stats = await self._admin.topic_stats(broker.address, topic)
            except OrbitlogError as error:
                self._parts[key] = self._parts.get(key, Part()).failed(problem_sentence(error))
            else:
                self._parts[key] = Part(stats, self._now_ms())
