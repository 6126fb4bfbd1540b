"""Topics of a cluster: kinds, queues with their ends and last writes, consuming groups, route and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample, message_count
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.views.answers import Answer, Listing, ListQuery, Missing, missing_parts
from orbitlog.console.views.known_names import require_topic
from orbitlog.console.views.list_selection import select
from orbitlog.errors import OrbitlogError
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.topic_config import TopicConfig

COLUMNS = ("topic", "kind", "queues", "brokers", "messages", "inPerSecond", "groups", "lastWrite")
_TYPE_ATTRIBUTE = "message.type"
_OLDEST_ASKED_MAX = 64
_PERMISSIONS = {6: "read, write", 4: "read", 2: "write", 7: "read, write, inherit"}


class TopicRow(Answer, kw_only=True):
    """One topic over all brokers. `messages` are those that the queues contain now."""

    topic: str
    kind: str
    queues: int
    brokers: int
    messages: int | None = None
    in_per_second: float | None = None
    groups: int | None = None
    last_write: int | None = None
    as_of: int | None = None
    unknown: dict[str, str] = msgspec.field(default_factory=dict)


class TopicListing(Listing, kw_only=True):
    """One page of topics; `hidden` counts system, retry and dead letter topics that are left out."""

    items: list[TopicRow]
    hidden: int = 0


class QueueRow(Answer, kw_only=True):
    """One queue of a topic. `oldest` is the time of its first message, from which on messages are kept."""

    broker: str
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    oldest: int | None
    last_write: int | None
    as_of: int | None


class TopicSettingRow(Answer, kw_only=True):
    """The configuration of a topic at one broker."""

    broker: str
    address: str
    read_queues: int
    write_queues: int
    permission: str
    ordered: bool
    attributes: dict[str, str]


class TopicAnswer(Answer, kw_only=True):
    """One topic in detail."""

    topic: str
    kind: str
    messages: int | None
    last_write: int | None
    in_per_second: float | None
    queues: list[QueueRow]
    groups: list[str]
    settings: list[TopicSettingRow]
    as_of: int
    problems: list[Missing] = msgspec.field(default_factory=list)


async def list_topics(source: ClusterSource, query: ListQuery) -> TopicListing:
    """Return one page of topics; the ends of its topics are read first, those of others are as last sampled."""
    sample = await source.sample()
    rows = [_bare_row(sample, topic) for topic in shown_topics(sample, query)]
    if query.sort.removeprefix("-") in ("", "topic", "kind", "queues", "brokers", "groups"):
        await source.with_ends({row.topic for row in select(rows, query, COLUMNS, "topic").rows})
    rows = [_row(sample, row.topic) for row in rows]
    chosen = select(rows, query, COLUMNS, "topic")
    problems = missing_parts(sample)
    return TopicListing(
        total=chosen.total,
        next=chosen.next,
        as_of=sample.as_of_ms,
        complete=not problems,
        problems=problems,
        items=chosen.rows,
        hidden=0 if query.system else len(sample.topic_names) - len(rows),
    )


def shown_topics(sample: ClusterSample, query: ListQuery) -> list[str]:
    """Return all topics, or without those that brokers create for themselves; a filter by kind shows every kind."""
    if query.system or "kind:" in query.q:
        return sorted(sample.topic_names)
    return sorted(topic for topic in sample.topic_names if kind_of(sample, topic) not in ("system", "retry", "dlq"))


def kind_of(sample: ClusterSample, topic: str) -> str:
    """Return the kind of a topic: by its name, or the message type of 5.x."""
    if topic.startswith(names.RETRY_PREFIX):
        return "retry"
    if topic.startswith(names.DLQ_PREFIX):
        return "dlq"
    if names.is_system_topic(topic) or topic in _named_by_brokers(sample):
        return "system"
    types = {config.attributes.get(_TYPE_ATTRIBUTE, "") for _, config in configs_of(sample, topic)} - {""}
    return min(types).lower() if types else "normal"


def _named_by_brokers(sample: ClusterSample) -> frozenset[str]:
    brokers = {broker.name for broker in sample.brokers}
    clusters = {broker.cluster for broker in sample.brokers}
    return frozenset((*brokers, *clusters, *(cluster + names.REPLY_TOPIC_SUFFIX for cluster in clusters)))


def configs_of(sample: ClusterSample, topic: str) -> Iterable[tuple[BrokerSample, TopicConfig]]:
    for broker in sample.masters:
        config = (broker.topics.value or {}).get(topic)
        if config is not None:
            yield broker, config


def groups_of(sample: ClusterSample, topic: str) -> list[str]:
    """Return the groups with committed offsets in a topic."""
    found = {
        group
        for broker in sample.masters
        for named, group in broker.offsets.value or {}
        if named == topic and group and "@" not in group
    }
    return sorted(found)


def _bare_row(sample: ClusterSample, topic: str) -> TopicRow:
    configs = list(configs_of(sample, topic))
    return TopicRow(
        topic=topic,
        kind=kind_of(sample, topic),
        queues=sum(config.read_queue_count for _, config in configs),
        brokers=len(configs),
    )


def _row(sample: ClusterSample, topic: str) -> TopicRow:
    messages, rate, last_write = 0, 0.0, 0
    as_of: int | None = None
    reasons: list[str] = []
    configs = list(configs_of(sample, topic))
    for broker, _ in configs:
        part = sample.ends.get((broker.name, topic))
        if part is None or part.value is None or part.as_of_ms is None:
            reasons.append(f"{broker.name}: {(part.problem if part else None) or 'not read yet'}")
            continue
        bounds = part.value.offsets.values()
        messages += message_count(part.value)
        last_write = max((last_write, *(entry.last_update_timestamp_ms for entry in bounds)))
        rate += part.value.put_tps
        as_of = part.as_of_ms if as_of is None else min(as_of, part.as_of_ms)
    reason = "; ".join(reasons)
    names_unknown = ("messages", "inPerSecond", "lastWrite") if reasons else ()
    return TopicRow(
        topic=topic,
        kind=kind_of(sample, topic),
        queues=sum(config.read_queue_count for _, config in configs),
        brokers=len(configs),
        messages=None if reasons else messages,
        in_per_second=None if reasons else rate,
        groups=len(groups_of(sample, topic)),
        last_write=None if reasons or not last_write else last_write,
        as_of=as_of,
        unknown=dict.fromkeys(names_unknown, reason),
    )


async def show_topic(source: ClusterSource, topic: str) -> TopicAnswer:
    """Return one topic; raise `ConsoleError` with 404 if no broker has it."""
    await source.sample_having(topic)
    sample = await source.with_ends({topic}, age_max_ms=1000)
    require_topic(source, sample, topic)
    row = _row(sample, topic)
    return TopicAnswer(
        topic=topic,
        kind=row.kind,
        messages=row.messages,
        last_write=row.last_write,
        in_per_second=row.in_per_second,
        queues=_queues(sample, topic, await _oldest(source, sample, topic)),
        groups=groups_of(sample, topic),
        settings=[_setting(broker, config) for broker, config in configs_of(sample, topic)],
        as_of=row.as_of or sample.as_of_ms,
        problems=missing_parts(sample),
    )


async def _oldest(source: ClusterSource, sample: ClusterSample, topic: str) -> dict[MessageQueue, int]:
    """Ask for the time of the first message of each queue; those of very many queues stay unknown."""
    asked = [
        (broker.address, queue)
        for broker, _ in configs_of(sample, topic)
        if (part := sample.ends.get((broker.name, topic))) is not None and part.value is not None
        for queue, bounds in part.value.offsets.items()
        if bounds.max_queue_offset > bounds.min_queue_offset
    ]

    async def earliest(address: str, queue: MessageQueue) -> int:
        try:
            return await source.groups.earliest_time_ms(address, queue)
        except OrbitlogError:
            return -1

    found = await asyncio.gather(*(earliest(address, queue) for address, queue in asked[:_OLDEST_ASKED_MAX]))
    return {queue: time_ms for (_, queue), time_ms in zip(asked, found, strict=False) if time_ms > 0}


def _queues(sample: ClusterSample, topic: str, oldest: Mapping[MessageQueue, int]) -> list[QueueRow]:
    rows = []
    for broker, _ in configs_of(sample, topic):
        part = sample.ends.get((broker.name, topic))
        for queue, bounds in sorted(part.value.offsets.items() if part and part.value else ()):
            first = max(bounds.min_queue_offset, 0)
            rows.append(
                QueueRow(
                    broker=queue.broker_name,
                    queue_id=queue.queue_id,
                    min_offset=first,
                    max_offset=bounds.max_queue_offset,
                    messages=max(0, bounds.max_queue_offset - first),
                    oldest=oldest.get(queue),
                    last_write=bounds.last_update_timestamp_ms or None,
                    as_of=part.as_of_ms if part else None,
                )
            )
    return rows


def _setting(broker: BrokerSample, config: TopicConfig) -> TopicSettingRow:
    return TopicSettingRow(
        broker=broker.name,
        address=broker.address,
        read_queues=config.read_queue_count,
        write_queues=config.write_queue_count,
        permission=_PERMISSIONS.get(config.permission, f"permission {config.permission}"),
        ordered=config.ordered,
        attributes=dict(config.attributes),
    )
