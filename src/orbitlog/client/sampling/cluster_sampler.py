"""Cluster sampler: polls the brokers of any cluster in rounds, with a bounded number of requests each.

A round asks every broker for a few whole tables. Details, such as the rates of a topic, need requests of their own:
those that were asked least recently come first, and what exceeds the budget of a round waits for the next one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from orbitlog.client.admin.administration import Administration
from orbitlog.client.admin.broker_admin import BrokerAdmin
from orbitlog.client.admin.group_admin import GroupAdmin
from orbitlog.client.sampling.sampled_numbers import (
    BrokerSample,
    ClientKey,
    ClientSample,
    ClusterSample,
    GroupKey,
    GroupRates,
    Progress,
    TopicKey,
    TopicSample,
)
from orbitlog.errors import BrokerRefused, NoRoute, OrbitlogError
from orbitlog.wire.bodies.queue_bodies import ConsumeStats

T = TypeVar("T")
DetailKey = TopicKey | GroupKey | ClientKey | str
"""A topic's offsets and rates, a group's rates, a client's status, or the members of the group of this name."""

_COST = {TopicKey: 3, GroupKey: 3, ClientKey: 1, str: 1}
"""Requests that a detail needs."""
_TABLES_SECONDS = 15.0
_MINUTE_NUMBERS = ("BROKER_PUT_NUMS", "BROKER_GET_NUMS")


class BrokerAddress(NamedTuple):
    """One broker, as name servers know it."""

    cluster: str
    name: str
    broker_id: int
    address: str


@dataclass(frozen=True, slots=True)
class SamplerLimits:
    """Bounds of one round."""

    requests_max: int = 2_000
    """Requests for details; the whole tables of each broker come on top."""
    concurrency: int = 8
    details: bool = True
    clients: bool = True


@dataclass(slots=True)
class SamplerCounts:
    """Counters of a sampler since its start."""

    requests: int = 0
    failed: int = 0
    postponed: int = 0
    round_seconds: float = 0.0


class ClusterSampler:
    """Polls one cluster; `sample` runs one round."""

    def __init__(self, admin: Administration, limits: SamplerLimits) -> None:
        self._admin = admin
        self._brokers = BrokerAdmin(admin.link)
        self._groups = GroupAdmin(admin.link)
        self._limits = limits
        self._permits = asyncio.Semaphore(limits.concurrency)
        self._asked: dict[DetailKey, int] = {}  # number of the round in which a detail was asked for last
        self._round = 0
        self._with_progress = True
        self._masters: dict[str, tuple[str, str]] = {}
        self._details = ClusterSample(0)
        self.counts = SamplerCounts()

    async def sample(self, *, with_progress: bool = True) -> ClusterSample:
        """Run a round and return its result; raise an `OrbitlogError` if no name server answers.

        Without progress, offsets of groups are left out: they are the most expensive table.
        """
        self._with_progress = with_progress
        started = time.monotonic()
        self._round += 1
        info = await self._counted(self._admin.cluster())
        result = ClusterSample(time.time_ns() // 1_000_000)
        wanted: dict[DetailKey, None] = {}
        every = [
            BrokerAddress(data.cluster or "", name, broker_id, address)
            for name, data in sorted(info.brokers.items())
            for broker_id, address in sorted(data.addresses.items())
        ]
        self._masters = {name: (cluster, address) for cluster, name, broker_id, address in every if broker_id == 0}
        await self._all(self._sample_broker(result, wanted, each) for each in every)
        if self._limits.details:
            await self._sample_details(wanted)
            details = self._details
            result.topics, result.rates = dict(details.topics), dict(details.rates)
            result.members, result.clients = dict(details.members), dict(details.clients)
        self.counts.round_seconds = time.monotonic() - started
        return result

    # Whole tables

    async def _sample_broker(self, result: ClusterSample, wanted: dict[DetailKey, None], broker: BrokerAddress) -> None:
        cluster, name, broker_id, address = broker
        try:
            runtime = await self._counted(self._brokers.runtime(address))
        except OrbitlogError as error:
            result.unreachable[address] = str(error)
            return
        is_master = broker_id == 0
        rates = [await self._minute(address, number, cluster) if is_master else None for number in _MINUTE_NUMBERS]
        result.brokers.append(BrokerSample(cluster, name, broker_id, address, runtime, *rates))
        if not is_master:
            return
        groups = await self._sample_progress(result, cluster, name, address) if self._with_progress else ()
        if not self._limits.details:
            return
        producers = await self._attempt(self._brokers.producers(address))  # unknown to brokers before 4.9.3
        for group, members in (producers.groups if producers is not None else {}).items():
            result.producers[cluster, name, group] = len(members)
        topics = await self._attempt(self._admin.topic_configs(address)) or {}
        wanted.update((TopicKey(cluster, name, topic), None) for topic in topics)
        wanted.update((key, None) for key in result.progress if key.broker == name)
        wanted.update((group, None) for group in groups)

    async def _sample_progress(self, result: ClusterSample, cluster: str, name: str, address: str) -> Iterable[str]:
        """Note the progress of all groups of a master; return their names."""
        try:
            answer = await self._counted(self._brokers.consume_stats(address, seconds=_TABLES_SECONDS))
            tables = [(group, stats) for entry in answer.groups for group, stats in entry.items()]
        except OrbitlogError:  # too many queues for one response, or a broker that does not know the request
            tables = await self._progress_by_group(address)
        for group, each in tables:
            for stats in each:
                _note_progress(result, cluster, name, group, stats)
        return [group for group, _ in tables]

    async def _progress_by_group(self, address: str) -> list[tuple[str, tuple[ConsumeStats, ...]]]:
        groups = await self._attempt(self._admin.groups(address)) or {}
        tables: list[tuple[str, tuple[ConsumeStats, ...]]] = []
        for group in list(groups)[: self._limits.requests_max]:
            stats = await self._attempt(self._brokers.group_stats(address, group))
            if stats is not None:
                tables.append((group, (stats,)))
        return tables

    async def _minute(self, address: str, number: str, key: str) -> float | None:
        stats = await self._attempt(self._brokers.statistic(address, number, key))
        return None if stats is None else stats.minute.tps

    # Details

    async def _sample_details(self, wanted: dict[DetailKey, None]) -> None:
        """Ask for the details that were asked least recently, as many as the budget allows."""
        known = self._details
        if self._limits.clients:
            members = ((group, found) for group, found in known.members.items() if group in wanted)
            wanted.update(
                (ClientKey(group, each.client_id), None) for group, found in members for each in found.connections
            )
        self._forget(wanted)
        due: list[DetailKey] = sorted(wanted, key=lambda key: self._asked.get(key, 0))
        budget, chosen = self._limits.requests_max, []
        for key in due:
            if budget < _COST[type(key)]:
                break
            budget -= _COST[type(key)]
            chosen.append(key)
        self.counts.postponed = len(due) - len(chosen)
        await self._all(map(self._sample_detail, chosen))

    def _forget(self, wanted: dict[DetailKey, None]) -> None:
        """Drop details of topics, groups and clients that no longer exist."""
        details = self._details
        tables: Sequence[dict[DetailKey, object]] = (  # type: ignore[assignment]  # dict is invariant
            *(self._asked, details.topics, details.rates, details.members, details.clients),
        )
        for table in tables:
            for key in [key for key in table if key not in wanted]:
                del table[key]

    async def _sample_detail(self, key: DetailKey) -> None:
        self._asked[key] = self._round
        if isinstance(key, TopicKey):
            await self._sample_topic(key)
        elif isinstance(key, GroupKey):
            await self._sample_rates(key)
        elif isinstance(key, ClientKey):
            await self._sample_client(key)
        else:
            await self._sample_members(key)

    async def _sample_topic(self, key: TopicKey) -> None:
        address = self._masters[key.broker][1]
        stats = await self._attempt(self._brokers.topic_stats(address, key.topic))
        if stats is None:
            self._details.topics.pop(key, None)
            return
        offset = sum(bounds.max_queue_offset for bounds in stats.offsets.values())
        rates = [await self._minute(address, number, key.topic) for number in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE")]
        self._details.topics[key] = TopicSample(offset, *rates)

    async def _sample_rates(self, key: GroupKey) -> None:
        address, word = self._masters[key.broker][1], f"{key.topic}@{key.group}"
        tps = await self._minute(address, "GROUP_GET_NUMS", word)
        size = await self._minute(address, "GROUP_GET_SIZE", word)
        sent_back = await self._attempt(self._brokers.statistic(address, "SNDBCK_PUT_NUMS", word))
        self._details.rates[key] = GroupRates(tps, size, None if sent_back is None else sent_back.minute.sum)

    async def _sample_members(self, group: str) -> None:
        for _, address in self._masters.values():
            found = await self._attempt(self._groups.connections(group, address), expected=True)
            if found is not None:
                self._details.members[group] = found
                return
        self._details.members.pop(group, None)

    async def _sample_client(self, key: ClientKey) -> None:
        members = self._details.members.get(key.group)
        connections = members.connections if members is not None else ()
        address = next((each.client_address for each in connections if each.client_id == key.client_id), None)
        info = await self._attempt(self._groups.running_info(key.group, key.client_id), expected=True)
        if address is None or info is None:
            self._details.clients.pop(key, None)
        else:
            self._details.clients[key] = ClientSample(address, info.statuses)

    # Requests

    async def _all(self, work: Iterable[Coroutine[Any, Any, None]]) -> None:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)

    async def _counted(self, request: Coroutine[Any, Any, T]) -> T:
        try:
            await self._permits.acquire()
        except asyncio.CancelledError:
            request.close()  # Python warns of coroutines that were never awaited
            raise
        try:
            self.counts.requests += 1
            return await request
        finally:
            self._permits.release()

    async def _attempt(self, request: Coroutine[Any, Any, T], *, expected: bool = False) -> T | None:
        """Return the result of a request; None if it failed. A refusal that is `expected` does not count as failure."""
        try:
            return await self._counted(request)
        except OrbitlogError as error:
            if not (expected and isinstance(error, BrokerRefused | NoRoute)):
                self.counts.failed += 1
            return None


def _note_progress(result: ClusterSample, cluster: str, broker: str, group: str, stats: ConsumeStats) -> None:
    for queue, offsets in stats.offsets.items():
        key = GroupKey(cluster, broker, queue.topic, group)
        progress = result.progress.setdefault(key, Progress(consume_tps=stats.consume_tps))
        progress.broker_offset += max(offsets.broker_queue_offset, 0)
        progress.consumer_offset += max(offsets.consumer_queue_offset, 0)
        if offsets.broker_queue_offset > offsets.consumer_queue_offset and offsets.last_timestamp_ms > 0:
            known = progress.waiting_since_ms or offsets.last_timestamp_ms
            progress.waiting_since_ms = min(known, offsets.last_timestamp_ms)
