"""Changes of consumer groups: create, change, switch consuming on and off, delete, and move committed offsets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta

from orbitlog.client.admin.offset_reset import OffsetReset, QueueReset, Target
from orbitlog.client.connection.namespaces import group_name
from orbitlog.console.changes.each_broker import chosen_masters, on_each
from orbitlog.console.changes.planned_change import ChangeRequest, PlanLine, PreparedChange, ResultLine, changed_fields
from orbitlog.console.console_call import Call
from orbitlog.console.sources.cluster_sample import BrokerSample
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.views.group_members import read_members
from orbitlog.console.views.known_names import require_group, require_topic, unknown_group
from orbitlog.console.views.message_filter import parse_time
from orbitlog.formats import names
from orbitlog.formats.tables.group_config import GroupConfig

_TYPED_FROM = 10_000
OnOff = Literal["", "yes", "no"]


class PutGroupRequest(ChangeRequest, kw_only=True):
    """Fields of a group; fields that are left out keep their value."""

    consume: Annotated[OnOff, Meta(description="Whether its members receive messages")] = ""
    broadcast: Annotated[OnOff, Meta(description="Whether members may consume all messages each")] = ""
    orderly: Annotated[OnOff, Meta(description="Whether retries keep the order; 5.x")] = ""
    retry_queues: Annotated[int, Meta(ge=-1, le=1024, description="Queues of its retry topic; -1 keeps")] = -1
    retry_times_max: Annotated[int, Meta(ge=-1, le=1000, description="Retries at most; -1 keeps")] = -1
    broker: Annotated[str, Meta(max_length=255, description="Name of one broker; empty for all masters")] = ""


class DeleteGroupRequest(ChangeRequest, kw_only=True):
    """Whether committed offsets are deleted with the group."""

    forget_offsets: Annotated[bool, Meta(description="Also delete its committed offsets")] = False


class MoveRequest(ChangeRequest, kw_only=True):
    """Where a group continues in a topic."""

    topic: Annotated[str, Meta(min_length=1, max_length=255)]
    to: Literal["earliest", "latest", "time", "offset"] = "latest"
    time: Annotated[str, Meta(max_length=40, description="For time: 2026-11-18T09:00:00, or -2h")] = ""
    offset: Annotated[int, Meta(ge=0, description="For offset: queue offset")] = 0
    queue: Annotated[int, Meta(ge=-1, le=100_000, description="One queue; -1 for all")] = -1


async def prepare_put_group(call: Call) -> PreparedChange:
    group, request = group_name(call.path["group"]), call.query
    sample = await call.cluster.fresh_sample()
    brokers = chosen_masters(sample, request.broker)
    lines: list[PlanLine] = []
    targets: list[tuple[str, tuple[BrokerSample, GroupConfig]]] = []
    for broker in brokers:
        before = (broker.groups.value or {}).get(group)
        after = _wanted(before or GroupConfig(group), request)
        fields = changed_fields(broker.name, None if before is None else _fields(before), _fields(after))
        lines += fields
        if fields:
            targets.append((broker.name, (broker, after)))

    async def put(target: tuple[BrokerSample, GroupConfig]) -> str:
        await call.cluster.brokers.put_group(target[0].address, target[1])
        return "saved"

    async def apply() -> list[ResultLine]:
        done = await on_each(targets, put)
        await call.cluster.fresh_sample()
        return done

    exists = any(group in (broker.groups.value or {}) for broker in brokers)
    return PreparedChange(
        action="change group" if exists else "create group",
        target=group,
        sentence=f"{'change' if exists else 'create'} group {group} at {len(targets)} of {len(brokers)} brokers",
        lines=lines,
        apply=apply,
        warnings=["consume off: members stay connected and receive nothing"] if request.consume == "no" else [],
    )


def _wanted(config: GroupConfig, request: PutGroupRequest) -> GroupConfig:
    def chosen(word: str, current: bool) -> bool:
        return current if not word else word == "yes"

    return replace(
        config,
        consume_enabled=chosen(request.consume, config.consume_enabled),
        consume_broadcast_enabled=chosen(request.broadcast, config.consume_broadcast_enabled),
        consume_orderly=chosen(request.orderly, config.consume_orderly),
        retry_queue_count=config.retry_queue_count if request.retry_queues < 0 else request.retry_queues,
        retry_times_max=config.retry_times_max if request.retry_times_max < 0 else request.retry_times_max,
    )


def _fields(config: GroupConfig) -> dict[str, str]:
    return {
        "consume": "on" if config.consume_enabled else "off",
        "broadcast": "allowed" if config.consume_broadcast_enabled else "off",
        "orderly": "yes" if config.consume_orderly else "no",
        "retry queues": str(config.retry_queue_count),
        "retries at most": str(config.retry_times_max),
    }


async def prepare_delete_group(call: Call) -> PreparedChange:
    group, source = call.path["group"], call.cluster
    if names.is_system_group(group):
        raise ConsoleError(400, f"{group[:130]} is a system group: brokers need it")
    sample = await source.fresh_sample()
    brokers = [
        broker
        for broker in chosen_masters(sample, "")
        if group in (broker.groups.value or {}) or group in broker.offsets_of_groups
    ]
    if not brokers:
        raise unknown_group(source, group)
    members = await read_members(source, sample, group)
    forget = call.query.forget_offsets
    lines = [PlanLine(what=f"{broker.name} settings", before="exist", after=None) for broker in brokers]
    for broker in brokers:
        count = sum(len(offsets) for _, offsets in broker.offsets_of_groups.get(group, ()))
        if forget and count:
            lines.append(PlanLine(what=f"{broker.name} offsets", before=f"{count} committed offsets", after=None))

    async def delete(broker: BrokerSample) -> str:
        await source.brokers.delete_group(broker.address, group, forget_offsets=forget)
        return "deleted"

    async def apply() -> list[ResultLine]:
        done = await on_each([(broker.name, broker) for broker in brokers], delete)
        await source.fresh_sample()
        return done

    warnings = []
    if members.clients:
        warnings.append(f"{len(members.clients)} members are connected: they may create the group again")
    if forget:
        warnings.append("without committed offsets a new group of this name starts as its consumers choose")
    return PreparedChange(
        action="delete group",
        target=group,
        sentence=f"delete group {group} at {len(brokers)} brokers; this cannot be undone",
        lines=lines,
        apply=apply,
        confirm=group,
        warnings=warnings,
        state=[broker.name for broker in brokers],
    )


async def prepare_move(call: Call) -> PreparedChange:
    group, request, source = call.path["group"], call.query, call.cluster
    sample = await source.fresh_sample()
    require_group(source, sample, group)
    require_topic(source, sample, request.topic)
    target = _target(request, source.now_ms)
    reset = OffsetReset(source.admin.link, source.admin.routes)
    queue_id = None if request.queue < 0 else request.queue
    planned = await reset.plan(group, request.topic, target, queue_id=queue_id)
    members = await read_members(source, sample, group)
    replayed = sum(max(0, _start(entry) - entry.target) for entry in planned)
    skipped = sum(max(0, entry.target - _start(entry)) for entry in planned)
    lines = [
        PlanLine(what=_queue_words(entry), before=_offset_words(entry.before), after=f"{entry.target:,}")
        for entry in planned
        if entry.before != entry.target
    ]

    async def apply() -> list[ResultLine]:
        done = await reset.apply(group, planned, target)
        await source.fresh_sample()
        return [
            ResultLine(what=_queue_words(entry), done=True, result=f"committed offset is {entry.target:,}")
            for entry in done
        ]

    words = [f"replays {replayed:,} messages"] if replayed else []
    words += [f"skips {skipped:,} unread messages"] if skipped else []
    # Committed offsets of a running group and the end of a busy topic move all the time: they are not part of the
    # state that must stay the same.
    is_running = bool(members.clients)
    state = [[_queue_words(entry), None if is_running else entry.before] for entry in planned]
    return PreparedChange(
        action="move group",
        target=group,
        sentence=f"move group {group} in topic {request.topic}: {' and '.join(words) or 'nothing changes'}",
        lines=lines,
        apply=apply,
        confirm=group if max(replayed, skipped) > _TYPED_FROM else "",
        warnings=[f"{len(members.clients)} members are connected and continue at the new offsets"]
        if is_running
        else [],
        state=state,
    )


def _target(request: MoveRequest, now_ms: int) -> Target:
    if request.to == "earliest" or request.to == "latest":
        return request.to
    if request.to == "offset":
        return request.offset
    timestamp_ms = parse_time(request.time, now_ms)
    if timestamp_ms is None:
        raise ConsoleError(400, "a move to a time needs `time`, such as 2026-11-18T09:00:00 or -2h")
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)


def _start(entry: QueueReset) -> int:
    return entry.first if entry.before is None else entry.before


def _queue_words(entry: QueueReset) -> str:
    return f"{entry.queue.topic} {entry.queue.broker_name} queue {entry.queue.queue_id}"


def _offset_words(offset: int | None) -> str | None:
    return None if offset is None else f"{offset:,}"
