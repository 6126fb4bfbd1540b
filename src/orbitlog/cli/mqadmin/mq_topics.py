"""Verbs about topics. Mirrors Java `tools.command.topic` and `StatsAllSubCommand`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitlog.cli.mqadmin.java_print import (
    front,
    human_time,
    in_hash_order,
    java_text,
    permission_text,
    queues_in_hash_order,
)
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import NO_CLUSTER, VerbFailed, VerbSession, checked_topic, cluster_of
from orbitlog.errors import OrbitlogError
from orbitlog.formats import names

if TYPE_CHECKING:
    from orbitlog.formats.message_queue import MessageQueue
    from orbitlog.formats.tables.loose_json import Json
    from orbitlog.formats.tables.topic_config import TopicConfig
    from orbitlog.wire.bodies.queue_bodies import TopicOffset
    from orbitlog.wire.bodies.route_bodies import BrokerData, TopicRoute

_ROUTE = "%-45s %-32s %-50s %-10s %-11s %-5s"
_STATUS = "%-32s  %-4s  %-20s  %-20s    %s"
_STATS = "%-64s  %-64s %12s %11s %11s %14s %14s"
_UNIT, _UNIT_SUBSCRIBED = 1, 2
_RULE = "-" * 158


async def topic_list(session: VerbSession, given: FlagValues) -> None:
    topics = await _registered_topics(session)
    if "c" not in given:
        for topic in topics:
            session.row("%s", topic)
        return
    info = await session.admin.cluster()
    session.row("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group")
    for topic in topics:
        if _is_of_group(topic):
            continue
        cluster: str | None = ""
        groups: list[str] = []
        try:
            route = await session.name_servers.route(topic)
            cluster = cluster_of(route.brokers[0].broker_name, info)
            groups = await _groups_of(session, route, topic)
        except (OrbitlogError, IndexError):
            pass  # as in Apache's tool, unknown values stay blank
        for group in groups or [""]:
            session.row("%-20s  %-64s  %-64s", front(cluster, 20), front(topic, 64), front(group, 64))


async def _registered_topics(session: VerbSession) -> list[str]:
    """Return the topics in the order of the name server's answer."""
    from orbitlog.wire.bodies.body_json import decode_body
    from orbitlog.wire.bodies.list_bodies import TopicList
    from orbitlog.wire.codes import RequestCode

    answer = await session.admin.link.invoke_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    return list(decode_body(TopicList, answer.body).topics)


def _is_of_group(topic: str) -> bool:
    return topic.startswith((names.RETRY_PREFIX, names.DLQ_PREFIX))


async def _groups_of(session: VerbSession, route: TopicRoute, topic: str) -> list[str]:
    for broker in route.brokers:
        address = selected(broker)
        if address is not None:
            return await session.brokers.groups_of_topic(address, topic)
    return []


def selected(broker: BrokerData) -> str | None:
    """Return the address of the master, or of a replica without a master, like `BrokerData.selectBrokerAddr`."""
    return broker.addresses.get(0) or next(iter(broker.addresses.values()), None)


async def topic_route(session: VerbSession, given: FlagValues) -> None:
    route = await session.name_servers.route(given["t"])
    if "l" not in given:
        from orbitlog.formats.tables.fastjson_writer import write_pretty

        session.row("%s", write_pretty(_route_json(route), int_keys_on_own_line=True))
        return
    queues = {data.broker_name: data for data in route.queues}
    session.row(_ROUTE, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    read = write = 0
    for broker in sorted(route.brokers, key=lambda each: each.broker_name):
        data = queues.get(broker.broker_name)
        if data is None:
            continue
        read, write = read + data.read_queue_count, write + data.write_queue_count
        counts = (data.read_queue_count, data.write_queue_count, data.permission)
        session.row(_ROUTE, broker.cluster, broker.broker_name, dict(broker.addresses), *counts)
    session.row("%s", _RULE)
    session.row(_ROUTE, "Total:", len(queues), "", read, write, "")


def _route_json(route: TopicRoute) -> dict[str | int, Json]:
    """Return a route as Apache's tool prints it: sorted by key, broker ids as numbers."""
    brokers: list[Json] = [
        {
            "brokerAddrs": {number: address for number, address in broker.addresses.items()},
            "brokerName": broker.broker_name,
            "cluster": broker.cluster,
            "enableActingMaster": broker.enable_acting_master,
            "zoneName": broker.zone,
        }
        for broker in route.brokers
    ]
    queues: list[Json] = [
        {
            "brokerName": data.broker_name,
            "perm": data.permission,
            "readQueueNums": data.read_queue_count,
            "topicSysFlag": data.sys_flag,
            "writeQueueNums": data.write_queue_count,
        }
        for data in route.queues
    ]
    servers: dict[str | int, Json] = {name: list(each) for name, each in route.filter_servers.items()}
    return {
        "brokerDatas": brokers,
        "filterServerTable": servers,
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": queues,
    }


async def topic_status(session: VerbSession, given: FlagValues) -> None:
    offsets: dict[MessageQueue, TopicOffset] = {}
    tps = 0.0
    for broker in (await session.name_servers.route(given.get("c") or given["t"])).brokers:
        address = selected(broker)
        if address is not None:
            stats = await session.brokers.topic_stats(address, given["t"])
            offsets |= stats.offsets
            tps += 0.0 if "c" in given else stats.put_tps
    if not offsets:
        raise VerbFailed("Not found the topic stats info")
    session.row(_STATUS, "#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")
    for queue, each in sorted(offsets.items()):
        updated = each.last_update_timestamp_ms
        session.row(
            "%-32s  %-4d  %-20d  %-20d    %s",
            front(queue.broker_name, 32),
            queue.queue_id,
            each.min_queue_offset,
            each.max_queue_offset,
            human_time(updated) if updated > 0 else "",
        )
    session.row("")
    session.row("Topic Put TPS: %s", tps)


async def topic_cluster_list(session: VerbSession, given: FlagValues) -> None:
    info = await session.admin.cluster()
    route = await session.name_servers.route(given["t"])
    for cluster, broker_names in info.clusters.items():
        if route.brokers and route.brokers[0].broker_name in broker_names:
            session.row("%s", cluster)


async def update_topic(session: VerbSession, given: FlagValues) -> None:
    from orbitlog.formats.tables.topic_config import TopicConfig

    config = TopicConfig(
        checked_topic(given["t"]),
        read_queue_count=given.number("r", 8),
        write_queue_count=given.number("w", 8),
        permission=given.number("p", 6),
        sys_flag=(_UNIT if given.truth("u") else 0) | (_UNIT_SUBSCRIBED if given.truth("s") else 0),
        ordered=given.truth("o"),
        attributes=given.attributes("a"),
    )
    for address in await session.targets(given.get("b"), given.get("c")):
        await session.brokers.put_topic(address, config, given.get("a"))
        if "b" in given and config.ordered:
            order = f"{await session.broker_name(address)}:{config.write_queue_count}"
            await session.name_servers.put_order(config.topic, order, whole_cluster=False)
            session.row("set broker orderConf. isOrder=%s, orderConf=[%s]", config.ordered, order)
        session.row("create topic to %s success.", address)
    if "c" in given and config.ordered:
        await _set_cluster_order(session, given["c"], config)
    session.row("%s", _config_text(config))


async def _set_cluster_order(session: VerbSession, cluster: str, config: TopicConfig) -> None:
    broker_names = (await session.admin.cluster()).clusters.get(cluster)
    if not broker_names:
        raise VerbFailed(NO_CLUSTER)
    order = ";".join(f"{name}:{config.write_queue_count}" for name in in_hash_order(broker_names))
    await session.name_servers.put_order(config.topic, order, whole_cluster=True)
    session.row("set cluster orderConf. isOrder=%s, orderConf=[%s]", config.ordered, order)


def _config_text(config: TopicConfig) -> str:
    return (
        f"TopicConfig [topicName={config.topic}, readQueueNums={config.read_queue_count}, "
        f"writeQueueNums={config.write_queue_count}, perm={permission_text(config.permission)}, "
        f"topicFilterType={config.filter_type}, topicSysFlag={config.sys_flag}, order={java_text(config.ordered)}, "
        f"attributes={java_text(config.attributes)}]"
    )


async def delete_topic(session: VerbSession, given: FlagValues) -> None:
    topic, cluster = given["t"], given["c"]
    for address in await session.cluster_brokers(cluster):
        await session.brokers.delete_topic(address, topic)
    session.row("delete topic [%s] from cluster [%s] success.", topic, cluster)
    await session.name_servers.delete_topic(topic, cluster)
    session.row("delete topic [%s] from NameServer success.", topic)


async def update_topic_perm(session: VerbSession, given: FlagValues) -> None:
    from orbitlog.formats.tables.topic_config import TopicConfig

    topic, permission = given["t"], given.number("p", 0)
    route = await session.name_servers.route(topic)
    if not route.queues:
        raise VerbFailed(f"No topic route info of the topic: {topic}")
    first = route.queues[0]
    config = TopicConfig(
        topic,
        read_queue_count=first.read_queue_count,
        write_queue_count=first.write_queue_count,
        sys_flag=first.sys_flag,
        permission=permission,
    )
    result = "update topic perm from %s to %s in %s success."
    if "b" not in given:
        for address in await session.targets(None, given.get("c")):
            await session.brokers.put_topic(address, config)
            session.row(result, first.permission, permission, address)
        return
    address = given["b"]
    name = next((each.broker_name for each in route.brokers if each.addresses.get(0) == address), None)
    if name is None:
        session.row("updateTopicPerm error broker not exit or broker is not master!.")
        return
    before = next((data.permission for data in route.queues if data.broker_name == name), 0)
    if before == permission:
        session.row("new perm equals to the old one!")
        return
    await session.brokers.put_topic(address, config)
    session.row(result, before, permission, address)
    session.row("%s.", _config_text(config))


async def update_order_conf(session: VerbSession, given: FlagValues) -> None:
    from orbitlog.client.admin.name_server_admin import ORDER_NAMESPACE

    topic = given["t"]
    match given["m"]:
        case "get":
            value = await session.name_servers.value(ORDER_NAMESPACE, topic)
            session.print("get orderConf success. topic=[%s], orderConf=[%s] ", topic, value)
        case "put":
            if not given.get("v"):
                raise VerbFailed("please set orderConf with option -v.")
            await session.name_servers.put_order(topic, given["v"], whole_cluster=True)
            session.print("update orderConf success. topic=[%s], orderConf=[%s]", topic, given["v"])
        case "delete":
            await session.name_servers.delete_value(ORDER_NAMESPACE, topic)
            session.print("delete orderConf success. topic=[%s]", topic)
        case other:
            raise VerbFailed(f"-m {other} is not one of put, get, delete")


async def allocate_mq(session: VerbSession, given: FlagValues) -> None:
    from orbitlog.client.connection.routes import make_route
    from orbitlog.wire.bodies.body_json import write_body
    from orbitlog.wire.queue_shares import STRATEGIES

    addresses = given["i"].split(",")
    route = make_route(given["t"], await session.name_servers.route(given["t"]))
    queues = queues_in_hash_order(route.read_queues)
    allocation: dict[str | int, Json] = {
        address: [_queue_json(queue) for queue in STRATEGIES["average"](address, queues, addresses)]
        for address in in_hash_order(addresses)
    }
    session.row("%s", write_body({"result": allocation}).decode())


def _queue_json(queue: MessageQueue) -> Json:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


async def stats_all(session: VerbSession, given: FlagValues) -> None:
    heads = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    session.row(_STATS, *heads)
    for topic in await _registered_topics(session):
        if _is_of_group(topic) or given.get("t") not in (None, "", topic):
            continue
        try:
            await _topic_stats(session, topic, active_only="a" in given)
        except OrbitlogError:
            continue


async def _topic_stats(session: VerbSession, topic: str, *, active_only: bool) -> None:
    route = await session.name_servers.route(topic)
    masters = [broker.addresses[0] for broker in route.brokers if 0 in broker.addresses]
    in_tps, in_day = await _summed(session, masters, "TOPIC_PUT_NUMS", topic)
    groups = await _groups_of(session, route, topic)
    for group in groups:
        out_tps, out_day = await _summed(session, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        try:
            behind = max((await session.groups.stats(group, topic)).total_diff, 0)
        except OrbitlogError:
            behind = 0
        if not active_only or in_day > 0 or out_day > 0:
            figures = (behind, f"{in_tps:.2f}", f"{out_tps:.2f}", in_day, out_day)
            session.row(_STATS, front(topic, 64), front(group, 64), *figures)
    if not groups and (not active_only or in_day > 0):
        session.row(_STATS, front(topic, 64), "", 0, f"{in_tps:.2f}", "", in_day, "NO_CONSUMER")


async def _summed(session: VerbSession, masters: list[str], name: str, key: str) -> tuple[float, int]:
    tps, day = 0.0, 0
    for address in masters:
        statistic = await session.brokers.statistic(address, name, key)
        if statistic is not None:
            tps += statistic.minute.tps
            day += statistic.day.sum or statistic.hour.sum or statistic.minute.sum
    return tps, day
