"""Verbs that reset offsets. Mirrors Java `tools.command.offset`."""

from __future__ import annotations

import time

from orbitlog.cli.mqadmin.java_print import front, java_text, parse_time_ms, queues_in_hash_order
from orbitlog.cli.mqadmin.mq_topics import selected
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import VerbSession
from orbitlog.errors import BrokerRefused
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.wire.codes import ResponseCode

_MOVED = "%-40s  %-40s  %-40s"
_ROLLED = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s"
_END_MS = -1


def _timestamp_ms(text: str) -> int:
    return time.time_ns() // 1_000_000 if text == "now" else parse_time_ms(text)


async def reset_offset_by_time(session: VerbSession, given: FlagValues) -> None:
    group, topic, text = given["g"], given["t"], given["s"]
    timestamp_ms, force = _timestamp_ms(text), given.truth("f", True)
    queue_id = given.number("q", -1)
    if "b" in given and queue_id >= 0:
        session.row(
            "start reset consumer offset by specified, group[%s], topic[%s], queueId[%s], broker[%s], "
            "timestamp(string)[%s], timestamp(long)[%s]",
            *(group, topic, queue_id, given["b"], text, timestamp_ms),
        )
        queue = MessageQueue(topic, "", queue_id)
        offset = (
            given.number("o", -1) if "o" in given else await session.groups.offset_at(given["b"], queue, timestamp_ms)
        )
        session.row("reset consumer offset to %d", offset)
        if offset > 0:
            await session.groups.reset(
                given["b"], group, topic, timestamp_ms=timestamp_ms, queue_id=queue_id, offset_to=offset
            )
        return
    moved = await _reset_all(session, group, topic, timestamp_ms)
    if moved is None:
        await _reset_old(session, group, topic, timestamp_ms, force=force, text=text)
        return
    session.row(
        "start reset consumer offset by specified, group[%s], topic[%s], force[%s], timestamp(string)[%s], "
        "timestamp(long)[%s]",
        *(group, topic, force, text, timestamp_ms),
    )
    _show_moved(session, moved)


async def skip_accumulated_message(session: VerbSession, given: FlagValues) -> None:
    group, topic = given["g"], given["t"]
    moved = await _reset_all(session, group, topic, _END_MS)
    if moved is None:
        session.row(_ROLLED, *_rolled_heads("#rollbackOffset"))
        await _roll(session, group, topic, _END_MS, force=given.truth("f", True))
        return
    _show_moved(session, moved)


async def reset_offset_by_time_old(session: VerbSession, given: FlagValues) -> None:
    force = given.truth("f", True)
    await _reset_old(session, given["g"], given["t"], _timestamp_ms(given["s"]), force=force, text=given["s"])


async def _reset_all(session: VerbSession, group: str, topic: str, timestamp_ms: int) -> dict[MessageQueue, int] | None:
    """Reset the offsets at every broker; return None if a broker cannot do so for a group without members."""
    moved: dict[MessageQueue, int] = {}
    for broker in (await session.name_servers.route(topic)).brokers:
        address = selected(broker)
        if address is None:
            continue
        reset = await session.groups.reset(address, group, topic, timestamp_ms=timestamp_ms)
        if reset is None:
            return None
        moved |= reset
    return moved


def _show_moved(session: VerbSession, moved: dict[MessageQueue, int]) -> None:
    session.row(_MOVED, "#brokerName", "#queueId", "#offset")
    for queue in queues_in_hash_order(moved):
        session.row(_MOVED, front(queue.broker_name, 32), queue.queue_id, moved[queue])


async def _reset_old(
    session: VerbSession, group: str, topic: str, timestamp_ms: int, *, force: bool, text: str
) -> None:
    session.row(
        "reset consumer offset by specified consumerGroup[%s], topic[%s], force[%s], timestamp(string)[%s], "
        "timestamp(long)[%s]",
        *(group, topic, java_text(force), text, timestamp_ms),
    )
    session.row(_ROLLED, *_rolled_heads("#resetOffset"))
    await _roll(session, group, topic, timestamp_ms, force=force)


def _rolled_heads(last: str) -> tuple[str, ...]:
    return ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", last)


async def _roll(session: VerbSession, group: str, topic: str, timestamp_ms: int, *, force: bool) -> None:
    """Commit offsets for a group without members, queue by queue."""
    route = await session.name_servers.route(topic)
    counts = {data.broker_name: data.read_queue_count for data in route.queues}
    for broker in route.brokers:
        address = selected(broker)
        if address is None:
            continue
        for queue_id in range(counts.get(broker.broker_name, 0)):
            queue = MessageQueue(topic, broker.broker_name, queue_id)
            end = await session.groups.max_offset(address, queue)
            before = await session.groups.committed(address, group, queue)
            now = before if before is not None else await session.groups.min_offset(address, queue)
            wanted = await session.groups.offset_at(address, queue, timestamp_ms)
            target = wanted if force or wanted <= now else now
            if target != now or before is None:
                await session.groups.commit(address, group, queue, target)
            session.row(_ROLLED, front(broker.broker_name, 32), queue_id, end, now, wanted, target)


async def clone_group_offset(session: VerbSession, given: FlagValues) -> None:
    source, target, topic = given["s"], given["d"], given["t"]
    stats = await session.groups.stats(source)
    brokers = {each.broker_name: selected(each) for each in (await session.name_servers.route(topic)).brokers}
    for queue, each in stats.offsets.items():
        address = brokers.get(queue.broker_name)
        if address is None or each.consumer_queue_offset < 0:
            continue
        try:
            await session.groups.commit(address, target, queue, each.consumer_queue_offset)
        except BrokerRefused as error:
            # The source group's retry topic cannot be consumed by the other group.
            if error.code not in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR) or queue.topic == topic:
                raise
    session.print("clone group offset success. srcGroup[%s], destGroup=[%s], topic[%s]", source, target, topic)
