"""Consumer groups of a cluster: lag, members, and progress in every queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample, message_count
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.group_lag import group_lag
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import Answer, Listing, ListQuery, Missing, missing_parts
from orbitlog.console.views.group_members import Membership, read_members, read_reported
from orbitlog.console.views.known_names import require_group
from orbitlog.console.views.list_selection import select
from orbitlog.errors import OrbitlogError
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.tables.group_config import GroupConfig
from orbitlog.wire.admin_headers import ConsumeStatsRequest, TopicGroupRequest
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import ConsumeOffset, ConsumeStats, ConsumeTimeSpans
from orbitlog.wire.client_versions import version_name
from orbitlog.wire.codes import RequestCode

COLUMNS = ("group", "lag", "topics", "consumedPerSecond", "deadLetters")
_SECONDS = 5.0
_QUIET_MIN_MS = 30_000


class GroupRow(Answer, kw_only=True):
    """One group over all brokers."""

    group: str
    state: str
    members: int | None = None
    topics: int
    topic_names: list[str]
    lag: int | None = None
    behind_ms: int | None = None
    consumed_per_second: float | None = None
    dead_letters: int | None = None
    as_of: int
    unknown: dict[str, str] = msgspec.field(default_factory=dict)


class GroupListing(Listing, kw_only=True):
    """One page of groups; `hidden` counts system groups that are left out."""

    items: list[GroupRow]
    hidden: int = 0


class GroupQueueRow(Answer, kw_only=True):
    """Progress of a group in one queue. `behind_ms` is the age of its oldest unread message."""

    topic: str
    broker: str
    queue_id: int
    committed: int
    end: int
    lag: int
    behind_ms: int | None = None
    last_consumed: int | None = None
    owner: str | None = None


class MemberRow(Answer, kw_only=True):
    """One connected client of a group."""

    client_id: str
    address: str
    language: str
    version: str
    brokers: list[str]


class SubscriptionRow(Answer, kw_only=True):
    """What the group subscribes to, as its brokers know it."""

    topic: str
    expression: str
    kind: str


class GroupSettingRow(Answer, kw_only=True):
    """The configuration of a group at one broker."""

    broker: str
    consume_enabled: bool
    broadcast_enabled: bool
    orderly: bool
    retry_queues: int
    retry_times_max: int


class GroupAnswer(Answer, kw_only=True):
    """One group in detail."""

    group: str
    state: str
    lag: int | None
    behind_ms: int | None
    consumed_per_second: float | None
    queues: list[GroupQueueRow]
    members: list[MemberRow]
    subscriptions: list[SubscriptionRow]
    own_topics: list[str]
    differences: list[str]
    mode: str | None
    settings: list[GroupSettingRow]
    dead_letters: int | None
    as_of: int
    problems: list[Missing] = msgspec.field(default_factory=list)
    unknown: dict[str, str] = msgspec.field(default_factory=dict)


async def list_groups(source: ClusterSource, query: ListQuery, stuck_after_seconds: float) -> GroupListing:
    """Return one page of groups. Members and the age of unread messages are asked for this page only."""
    sample = await source.sample()
    shown = [group for group in sorted(sample.group_names) if query.system or not names.is_system_group(group)]
    chosen = select([_row(source, sample, group) for group in shown], query, COLUMNS, "-lag")
    members = await asyncio.gather(*(read_members(source, sample, row.group) for row in chosen.rows))
    waits = await asyncio.gather(*(_row_wait(source, sample, row) for row in chosen.rows))
    problems = missing_parts(sample)
    return GroupListing(
        total=chosen.total,
        next=chosen.next,
        as_of=sample.as_of_ms,
        complete=not problems,
        problems=problems,
        items=[
            _completed(source, sample, row, found, waited, stuck_after_seconds)
            for row, found, waited in zip(chosen.rows, members, waits, strict=True)
        ],
        hidden=len(sample.group_names) - len(shown),
    )


async def _row_wait(source: ClusterSource, sample: ClusterSample, row: GroupRow) -> int | None:
    return (0 if row.lag == 0 else None) if not row.lag else await waited_ms(source, sample, row.group)


def _row(source: ClusterSource, sample: ClusterSample, group: str) -> GroupRow:
    lag = group_lag(sample, group)
    letters, letters_reason = dead_letter_count(sample, group)
    unknown: dict[str, str] = {}
    if lag.lag is None:
        unknown["lag"] = str(lag.reason)
    if letters_reason is not None:
        unknown["deadLetters"] = letters_reason
    rate = source.progress.rate(group)
    if rate is None:
        unknown["consumedPerSecond"] = "known after two samples, within ten seconds"
    return GroupRow(
        group=group,
        state="",
        topics=len(lag.topics),
        topic_names=list(lag.topics),
        lag=lag.lag,
        consumed_per_second=rate,
        dead_letters=letters,
        as_of=sample.as_of_ms,
        unknown=unknown,
    )


def dead_letter_count(sample: ClusterSample, group: str) -> tuple[int | None, str | None]:
    """Return the number of dead letters of a group, or None and the reason."""
    topic = names.dead_letter_topic(group)
    total = 0
    for broker in sample.masters:
        if topic not in (broker.topics.value or {}):
            continue
        part = sample.ends.get((broker.name, topic))
        if part is None or part.value is None:
            return None, f"the end of {topic} was not read yet"
        total += message_count(part.value)
    return total, None


def _completed(  # noqa: PLR0917 - the parts of a row
    source: ClusterSource,
    sample: ClusterSample,
    row: GroupRow,
    found: Membership,
    behind_ms: int | None,
    stuck_after_seconds: float,
) -> GroupRow:
    count = None if found.problem is not None else len(found.clients)
    unknown = dict(row.unknown)
    if found.problem is not None:
        unknown["members"] = found.problem
    if behind_ms is None:
        unknown["behindMs"] = "no broker returned the age of the next message"
    state = state_of(configs_of(sample, row.group), count)
    if state == "running" and is_stuck(source, row.group, behind_ms, stuck_after_seconds):
        state = "stuck"
    return msgspec.structs.replace(row, state=state, members=count, behind_ms=behind_ms, unknown=unknown)


def is_stuck(source: ClusterSource, group: str, waited: int | None, stuck_after_seconds: float) -> bool:
    """Return whether a group with members consumes nothing while its next message waits.

    A group that is slow, but commits, is not stuck. A console that has just started watches for `_QUIET_MIN_MS`.
    """
    limit_ms = stuck_after_seconds * 1000
    return waited is not None and waited >= limit_ms and source.progress.quiet_ms(group) >= min(limit_ms, _QUIET_MIN_MS)


def state_of(configs: Iterable[tuple[BrokerSample, GroupConfig]], members: int | None) -> str:
    """Return one word: off, running, no members, or unknown; whether a group is stuck is another question."""
    configured = list(configs)
    if configured and not any(config.consume_enabled for _, config in configured):
        return "off"
    if members is None:
        return "unknown"
    return "running" if members else "no members"


def configs_of(sample: ClusterSample, group: str) -> Iterable[tuple[BrokerSample, GroupConfig]]:
    for broker in sample.masters:
        config = (broker.groups.value or {}).get(group)
        if config is not None:
            yield broker, config


async def show_group(source: ClusterSource, group: str, stuck_after_seconds: float) -> GroupAnswer:
    """Return one group; its progress is read from every broker now."""
    sample = await source.sample()
    if group not in sample.group_names:
        sample = await source.fresh_sample()
    require_group(source, sample, group)
    sample = await source.with_ends({names.dead_letter_topic(group)})
    masters = list(sample.masters)
    stats = await asyncio.gather(*(_progress(source, broker, group) for broker in masters))
    problems = missing_parts(sample) + [found for found in stats if isinstance(found, Missing)]
    tables = [found for found in stats if not isinstance(found, Missing)]
    offsets = {queue: entry for table in tables for queue, entry in table.offsets.items()}
    membership = await read_members(source, sample, group)
    behind = await _behind(source, masters, group, {queue.topic for queue in offsets})
    reported = await read_reported(source, group, membership)
    rows = [_queue_row(queue, entry, behind, reported.owners) for queue, entry in sorted(offsets.items())]
    is_complete = len(tables) == len(masters) and bool(masters)
    letters, letters_reason = dead_letter_count(sample, group)
    members = None if membership.problem is not None else len(membership.clients)
    waited = max((row.behind_ms for row in rows if row.behind_ms is not None), default=None)
    state = state_of(configs_of(sample, group), members)
    if state == "running" and is_stuck(source, group, waited, stuck_after_seconds):
        state = "stuck"
    return GroupAnswer(
        group=group,
        state=state,
        lag=sum(row.lag for row in rows) if is_complete else None,
        behind_ms=waited,
        consumed_per_second=sum(table.consume_tps for table in tables) if is_complete else None,
        queues=rows,
        members=[
            MemberRow(
                client_id=client.client_id,
                address=client.client_address,
                language=client.language,
                version=version_name(client.version),
                brokers=brokers,
            )
            for client, brokers in membership.clients.values()
        ],
        subscriptions=[
            SubscriptionRow(topic=data.topic, expression=data.expression, kind=data.expression_type)
            for data in membership.subscriptions.values()
        ],
        own_topics=sorted({row.topic for row in rows if not row.topic.startswith(names.RETRY_PREFIX)}),
        differences=reported.differences,
        mode=membership.mode,
        settings=[_setting(broker, config) for broker, config in configs_of(sample, group)],
        dead_letters=letters,
        as_of=source.now_ms,
        problems=problems,
        unknown={"deadLetters": letters_reason} if letters_reason else {},
    )


async def _progress(source: ClusterSource, broker: BrokerSample, group: str) -> ConsumeStats | Missing:
    header = ConsumeStatsRequest(group=group, topic=None)
    try:
        answer = await source.admin.link.invoke(broker.address, RequestCode.GET_CONSUME_STATS, header, seconds=_SECONDS)
        return decode_body(ConsumeStats, answer.body)
    except OrbitlogError as error:
        return Missing(server=f"broker {broker.name} ({broker.address})", reason=problem_sentence(error))


async def _behind(
    source: ClusterSource, masters: list[BrokerSample], group: str, topics: set[str]
) -> dict[MessageQueue, int]:
    """Return by queue how long its next unread message has waited; brokers without this request are left out."""

    async def spans(broker: BrokerSample, topic: str) -> dict[MessageQueue, int]:
        header = TopicGroupRequest(topic=topic, group=group)
        try:
            answer = await source.admin.link.invoke(
                broker.address, RequestCode.QUERY_CONSUME_TIME_SPAN, header, seconds=_SECONDS
            )
            found = decode_body(ConsumeTimeSpans, answer.body).spans
        except OrbitlogError:
            return {}
        return {span.queue: span.delay_ms for span in found}

    pairs = [(broker, topic) for broker in masters for topic in topics if topic in (broker.topics.value or {})]
    merged: dict[MessageQueue, int] = {}
    for found in await asyncio.gather(*(spans(broker, topic) for broker, topic in pairs)):
        merged |= found
    return merged


async def waited_ms(source: ClusterSource, sample: ClusterSample, group: str) -> int | None:
    """Return how long the oldest unread message of a group has waited; None if no broker answers that."""
    topics = {topic for broker in sample.masters for topic, _ in broker.offsets_of_groups.get(group, ())}
    return max((await _behind(source, list(sample.masters), group, topics)).values(), default=None)


def _queue_row(
    queue: MessageQueue, entry: ConsumeOffset, behind: Mapping[MessageQueue, int], owners: Mapping[MessageQueue, str]
) -> GroupQueueRow:
    lag = max(0, entry.broker_queue_offset - entry.consumer_queue_offset)
    return GroupQueueRow(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        committed=entry.consumer_queue_offset,
        end=entry.broker_queue_offset,
        lag=lag,
        behind_ms=0 if lag == 0 else behind.get(queue),
        last_consumed=entry.last_timestamp_ms or None,
        owner=owners.get(queue),
    )


def _setting(broker: BrokerSample, config: GroupConfig) -> GroupSettingRow:
    return GroupSettingRow(
        broker=broker.name,
        consume_enabled=config.consume_enabled,
        broadcast_enabled=config.consume_broadcast_enabled,
        orderly=config.consume_orderly,
        retry_queues=config.retry_queue_count,
        retry_times_max=config.retry_times_max,
    )
