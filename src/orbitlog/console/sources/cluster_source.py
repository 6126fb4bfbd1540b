"""Cluster source: one connection to a cluster, sampled in rounds that slow down while no page is open.

A round asks every name server and broker once for whole tables; the lag of every group follows from these in memory,
without a request for each group.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import TypeVar

from orbitlog.client.admin.administration import Administration, administer
from orbitlog.client.admin.broker_admin import BrokerAdmin
from orbitlog.client.admin.group_admin import GroupAdmin
from orbitlog.console.console_options import ClusterChoice
from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample, NameServerSample, Part
from orbitlog.console.sources.group_progress import GroupProgress
from orbitlog.console.sources.lag_history import LagHistory
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.sources.topic_ends import TopicEnds
from orbitlog.errors import OrbitlogError
from orbitlog.formats.tables.offset_tables import ConsumerOffsets, QueueOffsets
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.route_bodies import ClusterInfo
from orbitlog.wire.codes import RequestCode

ROUND_SECONDS = 5.0
IDLE_ROUND_SECONDS = 60.0  # while no page is open, a history is kept nevertheless
WATCHED_SECONDS = 30.0  # several rounds: a page reloads once in each
TABLE_AGE_MS = 20_000  # tables change seldom, and are the largest answers
ENDS_PER_ROUND = 250  # 50 requests a second
IDLE_ENDS_PER_ROUND = 120
_SECONDS = 3.0
_RETRY_MS = 1000  # between two rereads of the tables for names that no broker has: visitors choose these

T = TypeVar("T")
log = logging.getLogger(__name__)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class ClusterSource:
    """A cluster: its latest sample, and the administration connection for requests of single pages."""

    def __init__(self, choice: ClusterChoice, now_ms: Callable[[], int] = wall_clock_ms) -> None:
        self.name = choice.name
        self.address = choice.address
        self.history = LagHistory()
        self.progress = GroupProgress()
        self._choice = choice
        self._now_ms = now_ms
        self._running = AsyncExitStack()
        self._admin: Administration | None = None
        self._ends: TopicEnds | None = None
        self._sample: ClusterSample | None = None
        self._sampled = asyncio.Event()
        self._wake = asyncio.Event()
        self._watched_until = 0.0
        self._tables_read_ms = 0

    async def start(self) -> None:
        """Connect lazily and begin to sample; a cluster that cannot be reached is a problem of its sample."""
        choice = self._choice
        self._admin = await self._running.enter_async_context(
            administer(choice.address, credentials=choice.credentials, tls=choice.tls)
        )
        self._ends = TopicEnds(BrokerAdmin(self._admin.link), self._now_ms)
        sampling = asyncio.create_task(self._sample_for_ever())
        self._running.push_async_callback(_cancelled, sampling)

    async def close(self) -> None:
        await self._running.aclose()

    @property
    def admin(self) -> Administration:
        assert self._admin is not None, "not started"
        return self._admin

    @property
    def brokers(self) -> BrokerAdmin:
        return BrokerAdmin(self.admin.link)

    @property
    def groups(self) -> GroupAdmin:
        return GroupAdmin(self.admin.link)

    @property
    def now_ms(self) -> int:
        return self._now_ms()

    async def sample(self) -> ClusterSample:
        """Return the latest sample; wait for the first one, or for a fresh one after an idle time."""
        loop = asyncio.get_running_loop()
        was_idle = self._watched_until < loop.time()
        self._watched_until = loop.time() + WATCHED_SECONDS
        if was_idle:
            self._sampled.clear()
            self._wake.set()
        try:
            # An old sample is better than none: a page states its age, and a broker that hangs would hold it up.
            async with asyncio.timeout(None if self._sample is None else _SECONDS):
                await self._sampled.wait()
        except TimeoutError:
            log.info("%s: no fresh sample within %g s, using the last one", self.name, _SECONDS)
        assert self._sample is not None
        return self._sample

    async def fresh_sample(self) -> ClusterSample:
        """Read every table now, and return the sample: before and after a change."""
        await self._take_sample(table_age_ms=0)
        assert self._sample is not None
        return self._sample

    async def sample_having(self, topic: str) -> ClusterSample:
        """Return a sample; tables are reread if it lacks the topic, which may be new."""
        sample = await self.sample()
        if topic in sample.topic_names or self._now_ms() - self._tables_read_ms < _RETRY_MS:
            return sample
        self._tables_read_ms = self._now_ms()
        return await self.fresh_sample()

    async def with_ends(self, topics: set[str], age_max_ms: int = 4000) -> ClusterSample:
        """Return the latest sample with recent ends of these topics."""
        sample = await self.sample()
        assert self._ends is not None
        try:
            async with asyncio.timeout(_SECONDS):
                await self._ends.read(sample.masters, topics, age_max_ms)
        except TimeoutError:
            log.info("%s: the ends of %d topics were not read in time", self.name, len(topics))
        return sample

    # Sampling

    async def _sample_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._take_sample(TABLE_AGE_MS)
            # Here and not before the wait: a page that is opened while ends are read waits for the next round.
            self._wake.clear()
            self._sampled.set()
            watched = self._watched_until > loop.time()
            await self._read_ends(IDLE_ENDS_PER_ROUND if not watched else ENDS_PER_ROUND)
            watched = self._watched_until > loop.time()
            try:
                async with asyncio.timeout(ROUND_SECONDS if watched else IDLE_ROUND_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _read_ends(self, count: int) -> None:
        assert self._ends is not None and self._sample is not None
        masters = list(self._sample.masters)
        self._ends.keep(masters)
        await self._ends.read_each(self._ends.oldest(masters, count, age_max_ms=int(ROUND_SECONDS * 800)))
        self.history.add(self._sample)

    async def _take_sample(self, table_age_ms: int) -> None:
        addresses = sorted(self.admin.link.name_servers)
        name_servers = await asyncio.gather(*(self._read_name_server(address) for address in addresses))
        members: dict[str, dict[int, str]] = {}
        clusters: dict[str, str] = {}
        for name_server in name_servers:
            clusters |= name_server.clusters
            for name, by_id in (name_server.brokers.value or {}).items():
                members.setdefault(name, {}).update(by_id)
        brokers = await asyncio.gather(
            *(
                self._read_broker(name, clusters.get(name, ""), broker_id, address, table_age_ms)
                for name, by_id in sorted(members.items())
                for broker_id, address in sorted(by_id.items())
            )
        )
        assert self._ends is not None
        self._sample = ClusterSample(self._now_ms(), tuple(name_servers), tuple(brokers), self._ends.parts)
        self.progress.add(self._sample)

    async def _read_name_server(self, address: str) -> NameServerSample:
        earlier = self._earlier_name_server(address)
        try:
            answer = await self.admin.link.invoke(address, RequestCode.GET_BROKER_CLUSTER_INFO, seconds=_SECONDS)
            info = decode_body(ClusterInfo, answer.body)
        except OrbitlogError as error:
            return NameServerSample(address, earlier.brokers.failed(problem_sentence(error)), earlier.clusters)
        brokers = {name: data.addresses for name, data in info.brokers.items()}
        clusters = {name: data.cluster or "" for name, data in info.brokers.items()}
        return NameServerSample(address, Part(brokers, self._now_ms()), clusters)

    def _earlier_name_server(self, address: str) -> NameServerSample:
        known = () if self._sample is None else self._sample.name_servers
        return next((sample for sample in known if sample.address == address), NameServerSample(address, Part()))

    async def _read_broker(
        self, name: str, cluster: str, broker_id: int, address: str, table_age_ms: int
    ) -> BrokerSample:
        earlier = self._earlier_broker(name, broker_id)
        admin, broker_admin = self.admin, self.brokers
        runtime = await self._part(earlier.runtime, 0, lambda: broker_admin.runtime(address))
        if broker_id != 0:
            return BrokerSample(name, cluster, broker_id, address, runtime)
        if runtime.problem is not None:  # three more requests would only time out as well
            failed = runtime.problem
            topics, groups, offsets = (
                earlier.topics.failed(failed),
                earlier.groups.failed(failed),
                earlier.offsets.failed(failed),
            )
        else:
            topics = await self._part(earlier.topics, table_age_ms, lambda: admin.topic_configs(address))
            groups = await self._part(earlier.groups, table_age_ms, lambda: admin.groups(address))
            offsets = await self._part(earlier.offsets, 0, lambda: self._offsets(address))
        return BrokerSample(name, cluster, broker_id, address, runtime, topics, groups, offsets)

    def _earlier_broker(self, name: str, broker_id: int) -> BrokerSample:
        for broker in () if self._sample is None else self._sample.brokers:
            if (broker.name, broker.broker_id) == (name, broker_id):
                return broker
        return BrokerSample(name, "", broker_id, "", Part())

    async def _part(self, earlier: Part[T], age_max_ms: int, read: Callable[[], Awaitable[T]]) -> Part[T]:
        if earlier.problem is None and earlier.as_of_ms is not None and self._now_ms() - earlier.as_of_ms < age_max_ms:
            return earlier
        try:
            return Part(await read(), self._now_ms())
        except OrbitlogError as error:
            return earlier.failed(problem_sentence(error))

    async def _offsets(self, address: str) -> QueueOffsets:
        answer = await self.admin.link.invoke(address, RequestCode.GET_ALL_CONSUMER_OFFSET, seconds=_SECONDS * 3)
        return decode_body(ConsumerOffsets, answer.body).offsets if answer.body else {}


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("sampling of a cluster ended: %s", error)


Sources = Mapping[str, ClusterSource]
