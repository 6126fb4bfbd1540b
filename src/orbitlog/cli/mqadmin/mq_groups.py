"""Verbs about groups and their members. Mirrors Java `tools.command.consumer`, `connection` and `producer`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.cli.mqadmin.java_print import front, java_text, printf, second_time, version_text
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import VerbFailed, VerbSession, checked_group, cluster_of
from orbitlog.errors import OrbitlogError
from orbitlog.formats import names
from orbitlog.formats.tables.group_config import GroupConfig, GroupRetryPolicy

if TYPE_CHECKING:
    from orbitlog.client.connection.running_info import RunningInfo

_PROGRESS = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s"
_PROGRESS_WITH_CLIENTS = "%-64s  %-32s  %-4s  %-20s  %-20s  %-20s %-20s %-20s"
_ALL_GROUPS = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
_STATUS = "%-10s %-40s %-20s %s"
_SETTLED_MS = 120_000
_CLIENT_ID_CHARACTERS_MAX = 200


async def update_sub_group(session: VerbSession, given: FlagValues) -> None:
    config = GroupConfig(
        checked_group(given["g"]),
        consume_enabled=given.truth("s", True),
        consume_from_min_enabled=given.truth("m"),
        consume_broadcast_enabled=given.truth("d"),
        consume_orderly=given.truth("o"),
        retry_queue_count=given.number("q", 1),
        retry_times_max=given.number("r", 16),
        retry_policy=_policy(given.get("p")),
        broker_id=given.number("i", 0),
        slow_consume_broker_id=given.number("w", 1),
        notify_ids_changed_enabled=given.truth("a", True),
        attributes=given.attributes("attributes"),
    )
    for address in await session.targets(given.get("b"), given.get("c")):
        await session.brokers.put_group(address, config)
        session.row("create subscription group to %s success.", address)
    fields = ", ".join(f"{name}={value}" for name, value in _fields(config, null="null"))
    session.print("%s", f"SubscriptionGroupConfig{{{fields}}}")


def _policy(text: str | None) -> GroupRetryPolicy:
    if text is None:
        return GroupRetryPolicy()
    from orbitlog.wire.bodies.body_json import decode_body

    return decode_body(GroupRetryPolicy, text.encode())


def _fields(config: GroupConfig, *, null: str) -> list[tuple[str, str]]:
    """Return the fields of a group in Java's order."""
    policy = config.retry_policy
    exponential = policy.exponential and (
        f"ExponentialRetryPolicy{{initial={policy.exponential.initial_ms}, max={policy.exponential.max_ms}, "
        f"multiplier={policy.exponential.multiplier}}}"
    )
    customized = policy.customized and f"CustomizedRetryPolicy{{next={java_text(policy.customized.delays_ms)}}}"
    policy_text = (
        f"GroupRetryPolicy{{type={policy.type}, exponentialRetryPolicy={java_text(exponential)}, "
        f"customizedRetryPolicy={java_text(customized)}}}"
    )
    return [
        ("groupName", config.group),
        ("consumeEnable", java_text(config.consume_enabled)),
        ("consumeFromMinEnable", java_text(config.consume_from_min_enabled)),
        ("consumeBroadcastEnable", java_text(config.consume_broadcast_enabled)),
        ("consumeMessageOrderly", java_text(config.consume_orderly)),
        ("retryQueueNums", str(config.retry_queue_count)),
        ("retryMaxTimes", str(config.retry_times_max)),
        ("groupRetryPolicy", policy_text),
        ("brokerId", str(config.broker_id)),
        ("whichBrokerWhenConsumeSlowly", str(config.slow_consume_broker_id)),
        ("notifyConsumerIdsChangedEnable", java_text(config.notify_ids_changed_enabled)),
        ("groupSysFlag", str(config.sys_flag)),
        ("consumeTimeoutMinute", str(config.consume_timeout_minutes)),
        ("subscriptionDataSet", null if config.subscriptions is None else java_text(config.subscriptions)),
        ("attributes", java_text(config.attributes)),
    ]


async def delete_sub_group(session: VerbSession, given: FlagValues) -> None:
    group, forget = given["g"], given.truth("r")
    result = "delete subscription group [%s] from broker [%s]"
    if "b" in given:
        await session.brokers.delete_group(given["b"], group, forget_offsets=forget)
        session.row(f"{result} success.", group, given["b"])
        return
    cluster = given.get("c")
    for address in await session.targets(None, cluster):
        await session.brokers.delete_group(address, group, forget_offsets=forget)
        session.row(f"{result} in cluster [%s] success.", group, address, cluster)
    if cluster is not None:
        for topic in (names.retry_topic(group), names.dead_letter_topic(group)):
            for address in await session.cluster_brokers(cluster):
                await session.brokers.delete_topic(address, topic)
            await session.name_servers.delete_topic(topic, cluster)


async def get_consumer_config(session: VerbSession, given: FlagValues) -> None:
    info = await session.admin.cluster()
    for name, broker in info.brokers.items():
        address = broker.addresses.get(0) or next(iter(broker.addresses.values()))
        config = await session.brokers.group(address, given["g"])
        if config is None:
            continue
        rule = "=" * 29
        session.row("%s", f"{rule}{cluster_of(name, info)}:{name}{rule}")
        for field, value in _fields(config, null=""):
            session.row("%-40s=  %s", field, value)


async def set_consume_mode(session: VerbSession, given: FlagValues) -> None:
    from orbitlog.formats.tables.group_config import RequestMode
    from orbitlog.wire.bodies.client_bodies import REQUEST_MODES

    topic, group, mode, shared = given["t"], given["g"], given["m"], given.number("q", 0)
    if mode not in REQUEST_MODES:
        raise VerbFailed(f"-m {mode} is not one of {', '.join(REQUEST_MODES)}")
    for address in await session.targets(given.get("b"), given.get("c")):
        await session.brokers.set_request_mode(address, RequestMode(topic, group, mode, shared))
        session.row("set consume mode to %s success.", address)
    session.print("topic[%s] group[%s] consume mode[%s] popShareQueueNum[%d]", topic, group, mode, shared)


# Progress


async def consumer_progress(session: VerbSession, given: FlagValues) -> None:
    if "g" in given:
        await _progress_of(session, given["g"], given.get("t"), with_clients=given.truth("s"))
        return
    heads = ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    session.row(_ALL_GROUPS, *heads)
    for topic in await session.admin.topics():
        if topic.startswith(names.RETRY_PREFIX):
            await _summary(session, topic.removeprefix(names.RETRY_PREFIX))


async def _progress_of(session: VerbSession, group: str, topic: str | None, *, with_clients: bool) -> None:
    stats = await session.groups.stats(group, topic)
    owners = await _owners(session, group) if with_clients else {}
    heads = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#Inflight"]
    template = _PROGRESS
    if with_clients:
        heads.insert(5, "#Client IP")
        template = _PROGRESS_WITH_CLIENTS
    # As in Apache's tool, the heading has no blank before the last column, but rows have one.
    session.row(template + "%s", *heads, "#LastTime")
    in_flight_total = 0
    for queue, each in stats.offsets.items():
        diff = each.broker_queue_offset - each.consumer_queue_offset
        in_flight = each.pull_queue_offset - each.consumer_queue_offset
        in_flight_total += in_flight
        cells: list[object] = [front(queue.topic, 64), front(queue.broker_name, 32), queue.queue_id]
        cells += [each.broker_queue_offset, each.consumer_queue_offset]
        cells += [owners.get(queue) or "N/A"] if with_clients else []
        last = second_time(each.last_timestamp_ms) if each.last_timestamp_ms else "N/A"
        session.row(template + " %s", *cells, diff, in_flight, last)
    session.row("")
    session.row("Consume TPS: %s", f"{stats.consume_tps:.2f}")
    session.row("Consume Diff Total: %d", stats.total_diff)
    session.row("Consume Inflight Total: %d", in_flight_total)


async def _owners(session: VerbSession, group: str) -> dict[object, str]:
    """Return the address of the member that consumes each queue, from the client id."""
    owners: dict[object, str] = {}
    try:
        for connection in (await session.groups.connections(group)).connections:
            info = await session.groups.running_info(group, connection.client_id)
            owners |= {queue: connection.client_id.partition("@")[0] for queue in info.queues}
    except OrbitlogError:
        pass  # unknown owners are printed as N/A
    return owners


async def _summary(session: VerbSession, group: str) -> None:
    tps = diff = 0
    count, version, kind, model = 0, "OFFLINE", "", ""
    try:
        stats = await session.groups.stats(group)
        tps, diff = int(stats.consume_tps), stats.total_diff
    except OrbitlogError:
        pass
    try:
        connected = await session.groups.connections(group)
        count = len(connected.connections)
        if count:
            version = version_text(min(each.version for each in connected.connections))
            kind = "PULL" if connected.consume_type == "CONSUME_ACTIVELY" else "PUSH"
            model = (connected.message_model or "") if connected.consume_type == "CONSUME_PASSIVELY" else ""
    except OrbitlogError:
        pass
    session.row(_ALL_GROUPS, front(group, 64), count, version, kind, model, tps, diff)


# Members


async def consumer_connection(session: VerbSession, given: FlagValues) -> None:
    connected = await session.groups.connections(given["g"], given.get("b"))
    session.row("%-36s %-22s %-10s %s", "#ClientId", "#ClientAddr", "#Language", "#Version")
    for each in connected.connections:
        session.row(
            "%-36s %-22s %-10s %s", each.client_id, each.client_address, each.language, version_text(each.version)
        )
    session.row("\nBelow is subscription:")
    session.row("%-20s %s", "#Topic", "#SubExpression")
    for subscription in connected.subscriptions.values():
        session.row("%-20s %s", subscription.topic, subscription.expression)
    session.row("")
    session.row("ConsumeType: %s", connected.consume_type)
    session.row("MessageModel: %s", connected.message_model)
    session.row("ConsumeFromWhere: %s", connected.consume_from_where)


async def producer_connection(session: VerbSession, given: FlagValues) -> None:
    connected = await session.groups.producers(given["g"], given["t"])
    for number, each in enumerate(connected.connections, 1):
        version = version_text(each.version)
        session.row("%04d  %-32s %-22s %-8s %s", number, each.client_id, each.client_address, each.language, version)


async def producer(session: VerbSession, given: FlagValues) -> None:
    for group, members in (await session.brokers.producers(given["b"])).groups.items():
        if not members:
            session.row("producer group (%s) instances are empty", group)
        for each in members:
            session.row(
                "producer group (%s) instance : clientId=%s,remoteIP=%s, language=%s, version=%d, "
                "lastUpdateTimestamp=%d",
                group,
                each.client_id,
                each.remote_address,
                each.language,
                each.version,
                each.last_update_timestamp_ms,
            )


async def consumer_status(session: VerbSession, given: FlagValues) -> None:
    group, with_stacks = given["g"], "s" in given
    connected = await session.groups.connections(group, given.get("b"))
    if "i" in given:
        info = await session.groups.running_info(group, given["i"], with_stacks=with_stacks)
        session.print("%s", running_info_text(info))
        return
    session.row(_STATUS, "#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
    members: dict[str, RunningInfo] = {}
    now_ms = time.time_ns() // 1_000_000
    for connection in connected.connections:
        client_id = connection.client_id
        info = await session.groups.running_info(group, client_id, with_stacks=with_stacks)
        members[client_id] = info
        path = _write_info(str(now_ms), client_id, running_info_text(info))
        session.row(_STATUS, len(members), client_id, version_text(connection.version), path)
    if not members:
        return
    if _subscribe_to_the_same(list(members.values()), now_ms):
        session.print("\n\nSame subscription in the same group of consumer")
        session.print("\n\nRebalance OK\n")
    else:
        session.print("\n\nWARN: Different subscription in the same group of consumer!!!")


def _write_info(directory: str, client_id: str, text: str) -> str:
    """Write a member's status to a file below the working directory, as Apache's tool does.

    The client id comes from the network: it must not be used as a path.
    """
    name = "".join(c if c.isalnum() or c in "@.#-_" else "_" for c in client_id)[:_CLIENT_ID_CHARACTERS_MAX]
    path = Path(directory) / name.lstrip(".")
    path.parent.mkdir(exist_ok=True)
    from orbitlog.storefiles.confined.regular_files import open_regular  # most verbs write no file

    descriptor = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    return str(path)


def _subscribe_to_the_same(infos: list[RunningInfo], now_ms: int) -> bool:
    first = infos[0]
    started = first.properties.get("PROP_CONSUMER_START_TIMESTAMP", "0")
    is_settled = started.isdecimal() and now_ms - int(started) > _SETTLED_MS
    if first.properties.get("PROP_CONSUME_TYPE") != "CONSUME_PASSIVELY" or not is_settled:
        return True
    wanted = [{(each.topic, each.expression) for each in info.subscriptions} for info in infos]
    return all(each == wanted[0] for each in wanted)


def running_info_text(info: RunningInfo) -> str:
    """Return a member's status with the headings of `ConsumerRunningInfo.formatString`."""
    parts = ["#Consumer Properties#\n"]
    parts += [f"{name:<40}: {value}\n" for name, value in info.properties.items()]
    parts.append("\n\n#Consumer Subscription#\n")
    for number, subscription in enumerate(sorted(info.subscriptions, key=lambda subscription: subscription.topic), 1):
        parts.append(
            f"{number:03d} Topic: {subscription.topic:<40} ClassFilter: {'false':<8}"
            f" SubExpression: {subscription.expression}\n"
        )
    parts.append("\n\n#Consumer Offset#\n")
    heads = ("#Topic", "#Broker Name", "#QID")
    parts.append(printf("%-64s  %-32s  %-4s  %-20s\n", *heads, "#Consumer Offset"))
    for queue, each_queue in sorted(info.queues.items()):
        names = (queue.topic, queue.broker_name, queue.queue_id)
        parts.append(printf("%-32s  %-32s  %-4d  %-20d\n", *names, each_queue.commit_queue_offset))
    parts.append("\n\n#Consumer MQ Detail#\n")
    parts.append(printf("%-64s  %-32s  %-4s  %-20s\n", *heads, "#ProcessQueueInfo"))
    for queue, each_queue in sorted(info.queues.items()):
        detail = (
            f"ProcessQueueInfo [commitOffset={each_queue.commit_queue_offset}, "
            f"cachedMsgCount={each_queue.cached_count}, cachedMsgSizeInMiB={each_queue.cached_mebibytes}, "
            f"locked={java_text(each_queue.is_locked)}, droped={java_text(each_queue.is_dropped)}]"
        )
        parts.append(printf("%-64s  %-32s  %-4d  %s\n", queue.topic, queue.broker_name, queue.queue_id, detail))
    parts.append("\n\n#Consumer RT&TPS#\n")
    rates = ("#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS")
    parts.append(printf("%-64s  %14s %14s %14s %14s %18s %25s\n", "#Topic", *rates, "#ConsumeFailedMsgsInHour"))
    for topic, status in sorted(info.statuses.items()):
        figures = (status.pull_ms, status.pull_tps, status.consume_ms, status.consumed_tps, status.failed_tps)
        parts.append(printf("%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d\n", topic, *figures, status.failed_in_hour))
    return "".join(parts)
