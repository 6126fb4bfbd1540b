"""Changes of topics: create, change and delete, at all masters or one."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from msgspec import Meta

from orbitlog.client.admin.name_server_admin import NameServerAdmin
from orbitlog.client.connection.namespaces import topic_name
from orbitlog.console.changes.each_broker import chosen_masters, masters_of, on_each
from orbitlog.console.changes.planned_change import ChangeRequest, PlanLine, PreparedChange, ResultLine, changed_fields
from orbitlog.console.console_call import Call
from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample, message_count
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.views.topic_view import groups_of
from orbitlog.formats import names
from orbitlog.formats.tables.topic_config import TopicConfig

_PERMISSIONS = {"read, write": 6, "read": 4, "write": 2}
_QUEUES_MAX = 1024
_TYPE_ATTRIBUTE = "message.type"
Queues = Annotated[int, Meta(ge=1, le=_QUEUES_MAX, description="Queues at each broker")]


class PutTopicRequest(ChangeRequest, kw_only=True):
    """Fields of a topic; fields that are left out keep their value."""

    read_queues: Annotated[int, Meta(ge=0, le=_QUEUES_MAX, description="Queues to read; 0 keeps the number")] = 0
    write_queues: Annotated[int, Meta(ge=0, le=_QUEUES_MAX, description="Queues to write; 0 keeps the number")] = 0
    permission: Literal["", "read, write", "read", "write"] = ""
    order: Literal["", "yes", "no"] = ""
    message_type: Annotated[
        Literal["", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"], Meta(description="Only brokers of 5.x")
    ] = ""
    broker: Annotated[str, Meta(max_length=255, description="Name of one broker; empty for all masters")] = ""


class DeleteTopicRequest(ChangeRequest, kw_only=True):
    """The broker at which the topic is deleted."""

    broker: Annotated[str, Meta(max_length=255, description="Name of one broker; empty for all masters")] = ""


async def prepare_put_topic(call: Call) -> PreparedChange:
    topic, request = topic_name(call.path["topic"]), call.query
    sample = await call.cluster.fresh_sample()
    brokers = chosen_masters(sample, request.broker)
    lines: list[PlanLine] = []
    targets: list[tuple[BrokerSample, TopicConfig, str | None]] = []
    for broker in brokers:
        before = (broker.topics.value or {}).get(topic)
        after = _wanted(before or TopicConfig(topic, 8, 8), request)
        attributes = f"+{_TYPE_ATTRIBUTE}={request.message_type}" if request.message_type else None
        fields = changed_fields(broker.name, None if before is None else _fields(before), _fields(after))
        lines += fields
        if fields:
            targets.append((broker, after, attributes))

    async def put(target: tuple[BrokerSample, TopicConfig, str | None]) -> str:
        broker, config, attributes = target
        await call.cluster.brokers.put_topic(broker.address, config, attributes)
        return "saved"

    async def apply() -> list[ResultLine]:
        done = await on_each([(target[0].name, target) for target in targets], put)
        await call.cluster.fresh_sample()
        return done

    exists = topic in sample.topic_names
    warnings = []
    if any(line.what.endswith("queues") and _shrinks(line) for line in lines):
        warnings.append("fewer queues: messages in the queues that are taken away are not consumed any longer")
    return PreparedChange(
        action="change topic" if exists else "create topic",
        target=topic,
        sentence=f"{'change' if exists else 'create'} topic {topic} at {len(targets)} of {len(brokers)} brokers",
        lines=lines,
        apply=apply,
        warnings=warnings,
    )


def _wanted(config: TopicConfig, request: PutTopicRequest) -> TopicConfig:
    attributes = dict(config.attributes)
    if request.message_type:
        attributes[_TYPE_ATTRIBUTE] = request.message_type
    return replace(
        config,
        read_queue_count=request.read_queues or config.read_queue_count,
        write_queue_count=request.write_queues or config.write_queue_count,
        permission=_PERMISSIONS.get(request.permission, config.permission),
        ordered=config.ordered if not request.order else request.order == "yes",
        attributes=attributes,
    )


def _fields(config: TopicConfig) -> dict[str, str]:
    return {
        "read queues": str(config.read_queue_count),
        "write queues": str(config.write_queue_count),
        "permission": str(config.permission),
        "ordered": "yes" if config.ordered else "no",
        "message type": config.attributes.get(_TYPE_ATTRIBUTE, "not set"),
    }


def _shrinks(line: PlanLine) -> bool:
    return line.before is not None and line.after is not None and int(line.after) < int(line.before)


async def prepare_delete_topic(call: Call) -> PreparedChange:
    topic, source = call.path["topic"], call.cluster
    if names.is_system_topic(topic):
        raise ConsoleError(400, f"{topic[:130]} is a system topic: brokers need it")
    await source.fresh_sample()
    sample = await source.with_ends({topic}, age_max_ms=0)
    everywhere = masters_of(sample, topic)
    brokers = [broker for broker in everywhere if call.query.broker in ("", broker.name)]
    if not brokers:
        raise ConsoleError(404, f"no such broker has the topic {topic[:130]}")
    lines = [
        PlanLine(what=broker.name, before=f"{_message_count(sample, broker, topic)} messages", after=None)
        for broker in brokers
    ]
    groups = groups_of(sample, topic)
    warnings = [f"groups that consume it: {', '.join(groups[:20])}"] if groups else []

    async def delete(broker: BrokerSample) -> str:
        await source.brokers.delete_topic(broker.address, topic)
        return "deleted"

    async def apply() -> list[ResultLine]:
        done = await on_each([(broker.name, broker) for broker in brokers], delete)
        if len(brokers) == len(everywhere) and all(line.done for line in done):
            await NameServerAdmin(source.admin.link).delete_topic(topic)
        await source.fresh_sample()
        return done

    return PreparedChange(
        action="delete topic",
        target=topic,
        sentence=f"delete topic {topic} and its messages at {len(brokers)} brokers; this cannot be undone",
        lines=lines,
        apply=apply,
        confirm=topic,
        warnings=warnings,
        state=[broker.name for broker in brokers],
    )


def _message_count(sample: ClusterSample, broker: BrokerSample, topic: str) -> str:
    part = sample.ends.get((broker.name, topic))
    if part is None or part.value is None:
        return "an unknown number of"
    return f"{message_count(part.value):,}"
