"""Journey of one message: sent, stored, queued, indexed, offered to each group, retried, dead, traced.

A stage that could not be asked has the state `unknown` with the reason; it is never shown as passed.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from orbitlog.client.admin.inspection import Inspection
from orbitlog.client.consumer.received import Received
from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import Answer, NoQuery
from orbitlog.console.views.group_members import read_members
from orbitlog.console.views.message_rows import MessageDetail, message_detail
from orbitlog.console.views.message_view import find_message
from orbitlog.console.views.topic_view import groups_of
from orbitlog.errors import OrbitlogError
from orbitlog.formats import names
from orbitlog.formats.java import string_hash
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties as props
from orbitlog.wire.trace_records import PUB, SUB_BEFORE, TraceRecord

GROUPS_MAX = 20
_CONTEXT_PROPERTIES = ("traceparent", "TRACE_CONTEXT")
_CONTEXT_PARTS = 4  # version, trace id, span id, flags
DONE, WAITING, FAILED, UNKNOWN, NONE = "done", "waiting", "failed", "unknown", "none"


class MessageIdQuery(NoQuery, kw_only=True):
    """The topic of a message; needed for the id of a producer."""

    topic: Annotated[str, Meta(max_length=255)] = ""


class JourneyStage(Answer, kw_only=True):
    """One stage: when, what, where, and whether it happened."""

    stage: str
    state: str
    sentence: str
    at: int | None = None
    group: str | None = None


class JourneyAnswer(Answer, kw_only=True):
    """One message and its journey."""

    detail: MessageDetail
    stages: list[JourneyStage]
    groups_left_out: int
    as_of: int
    links: dict[str, str] = msgspec.field(default_factory=dict)


async def show_message(source: ClusterSource, message_id: str, topic: str) -> JourneyAnswer:
    message = await find_message(source, message_id, topic)
    sample = await source.sample()
    broker = _broker_of(sample, message)
    stages = [_sent(message), _stored(message)]
    stages.append(await _queued(source, broker, message))
    stages.append(await _indexed(source, message))
    groups = [group for group in groups_of(sample, message.stored.topic) if not names.is_system_group(group)]
    for group in groups[:GROUPS_MAX]:
        stages += await _offered(source, sample, broker, message, group)
    stages += await _traced(source, message)
    stages += _context(message)
    return JourneyAnswer(
        detail=message_detail(message),
        stages=stages,
        groups_left_out=max(0, len(groups) - GROUPS_MAX),
        as_of=source.now_ms,
    )


def _broker_of(sample: ClusterSample, message: Received) -> BrokerSample | None:
    host = str(message.stored.store_host)
    return next((broker for broker in sample.brokers if broker.address == host), None)


def _sent(message: Received) -> JourneyStage:
    stored = message.stored
    return JourneyStage(stage="sent", state=DONE, sentence=f"by {stored.born_host}", at=stored.born_timestamp_ms)


def _stored(message: Received) -> JourneyStage:
    stored = message.stored
    sentence = f"at {stored.store_host}, physical offset {stored.physical_offset}, body {len(stored.body)} B"
    return JourneyStage(stage="stored", state=DONE, sentence=sentence, at=stored.store_timestamp_ms)


async def _queued(source: ClusterSource, broker: BrokerSample | None, message: Received) -> JourneyStage:
    stored = message.stored
    place = f"queue {stored.queue_id}, offset {stored.queue_offset}"
    if broker is None:
        return JourneyStage(stage="queue", state=UNKNOWN, sentence=f"{place}: its broker is not registered")
    try:
        units = await source.brokers.queue_units(broker.address, stored.topic, stored.queue_id, stored.queue_offset, 1)
    except OrbitlogError as error:
        return JourneyStage(stage="queue", state=UNKNOWN, sentence=f"{place}: {problem_sentence(error)}")
    if not units.units:
        return JourneyStage(stage="queue", state=FAILED, sentence=f"{place}: the queue has no unit there")
    unit = units.units[0]
    if unit.physical_offset != stored.physical_offset:
        sentence = f"{place}: the unit points to {unit.physical_offset} instead of {stored.physical_offset}"
        return JourneyStage(stage="queue", state=FAILED, sentence=sentence)
    expected = string_hash(message.tags) if message.tags else 0
    tags = "tags hash right" if unit.tags_code == expected else f"tags hash {unit.tags_code}"
    return JourneyStage(stage="queue", state=DONE, sentence=f"{place}: unit of {unit.size} B, {tags}")


async def _indexed(source: ClusterSource, message: Received) -> JourneyStage:
    key = message.properties.get(props.UNIQ_KEY) or next(iter(message.keys), None)
    if key is None:
        return JourneyStage(stage="index", state=NONE, sentence="the message has no id of a producer and no keys")
    is_id = key == message.properties.get(props.UNIQ_KEY)
    try:
        async for found in source.admin.find(message.stored.topic, key, count=32, by_id=is_id):
            if found.stored.physical_offset == message.stored.physical_offset:
                return JourneyStage(stage="index", state=DONE, sentence=f"found by {key}")
    except OrbitlogError as error:
        return JourneyStage(stage="index", state=UNKNOWN, sentence=problem_sentence(error))
    return JourneyStage(stage="index", state=FAILED, sentence=f"a query by {key} does not find it")


async def _offered(
    source: ClusterSource, sample: ClusterSample, broker: BrokerSample | None, message: Received, group: str
) -> list[JourneyStage]:
    stages = [await _progress(source, sample, broker, message, group)]
    for stage, topic in (("retry", names.retry_topic(group)), ("dead letter", names.dead_letter_topic(group))):
        if topic not in sample.topic_names:
            continue
        try:
            async for copy in source.admin.find(topic, message.message_id, count=16, by_id=True):
                sentence = f"attempt {copy.stored.reconsume_times}" if stage == "retry" else "given up by the group"
                at_ms = copy.stored.store_timestamp_ms
                stages.append(JourneyStage(stage=stage, state=FAILED, sentence=sentence, at=at_ms, group=group))
        except OrbitlogError as error:
            problem = problem_sentence(error)
            stages.append(JourneyStage(stage=stage, state=UNKNOWN, sentence=problem, group=group))
    return stages


async def _progress(
    source: ClusterSource, sample: ClusterSample, broker: BrokerSample | None, message: Received, group: str
) -> JourneyStage:
    stored = message.stored
    queue = MessageQueue(stored.topic, message.broker_name, stored.queue_id)
    try:
        committed = None if broker is None else await source.groups.committed(broker.address, group, queue)
    except OrbitlogError as error:
        return JourneyStage(stage="group", state=UNKNOWN, sentence=problem_sentence(error), group=group)
    if committed is None:
        sentence = "no offset is committed for its queue"
        return JourneyStage(stage="group", state=UNKNOWN, sentence=sentence, group=group)
    if committed > stored.queue_offset:
        members = await read_members(source, sample, group)
        subscription = members.subscriptions.get(stored.topic)
        tags = set(subscription.tags) if subscription is not None and subscription.expression_type == "TAG" else set()
        if tags and message.tags not in tags:
            sentence = f"filtered out: the group subscribes to {subscription.expression if subscription else ''}"
            return JourneyStage(stage="group", state=DONE, sentence=sentence, group=group)
        return JourneyStage(stage="group", state=DONE, sentence=f"consumed: committed {committed}", group=group)
    before = stored.queue_offset - committed
    place = "it is the next one" if not before else f"{before:,} message{'s' if before > 1 else ''} before it"
    sentence = f"not consumed yet: {place}"
    return JourneyStage(stage="group", state=WAITING, sentence=sentence, group=group)


async def _traced(source: ClusterSource, message: Received) -> list[JourneyStage]:
    try:
        records = await Inspection(source.admin).traces(message.message_id)
    except OrbitlogError as error:
        return [JourneyStage(stage="trace", state=UNKNOWN, sentence=problem_sentence(error))]
    if not records:
        sentence = "no trace: clients report one only if tracing is switched on"
        return [JourneyStage(stage="trace", state=NONE, sentence=sentence)]
    return [
        JourneyStage(
            stage="trace",
            state=DONE if record.success else FAILED,
            sentence=_traced_step(record),
            at=record.timestamp_ms or None,
            group=record.group or None,
        )
        for record in records
    ]


def _traced_step(record: TraceRecord) -> str:
    if record.kind == SUB_BEFORE:
        return "given to a consumer"
    return f"{'sent' if record.kind == PUB else 'consumed'} in {record.cost_ms} ms"


def _context(message: Received) -> list[JourneyStage]:
    """Return the trace that an instrumented client put into the properties, if there is one."""
    text = next((value for name in _CONTEXT_PROPERTIES if (value := message.properties.get(name))), None)
    parts = (text or "").split("-")
    if len(parts) != _CONTEXT_PARTS:
        return []
    return [JourneyStage(stage="trace", state=DONE, sentence=f"OpenTelemetry trace {parts[1]}, span {parts[2]}")]
