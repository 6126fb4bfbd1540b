"""Verbs about brokers, clusters and name servers. Mirrors Java `tools.command.broker`, `cluster`, `namesrv`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping

from orbitlog.cli.mqadmin.java_print import front, in_hash_order, second_time
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import NO_CLUSTER, VerbSession
from orbitlog.errors import OrbitlogError

_LIST = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  {wait}  %-12s  %-8s  {active}"
_COUNTS = "%-16s  %-32s %14s %14s %14s %14s"
_CONSUME = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s"
_SETTING = "%-50s=  %s"
_RULE = "=" * 12


async def cluster_list(session: VerbSession, given: FlagValues) -> None:
    while True:
        info = await session.admin.cluster()
        clusters = [given["c"]] if given.get("c") else in_hash_order(info.clusters)
        show = _show_counts if "m" in given else _show_brokers
        await show(session, {each: sorted(info.clusters.get(each, ())) for each in clusters}, info.brokers)
        if "i" not in given:
            return
        await asyncio.sleep(given.number("i", 1))


async def _show_counts(session: VerbSession, clusters: Mapping[str, list[str]], brokers: Mapping[str, object]) -> None:
    heads = ("#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    session.row(_COUNTS, "#Cluster Name", "#Broker Name", *heads)
    for cluster, broker_names in clusters.items():
        for name, _, address in _members(broker_names, brokers):
            numbers = await _numbers(session, address)
            put, get = ([int(numbers.get(f"msg{kind}Total{when}", 0)) for when in _MOMENTS] for kind in ("Put", "Get"))
            session.row(_COUNTS, cluster, name, put[1] - put[0], get[1] - get[0], put[2] - put[1], get[2] - get[1])


_MOMENTS = ("YesterdayMorning", "TodayMorning", "TodayNow")


def _members(broker_names: list[str], brokers: Mapping[str, object]) -> list[tuple[str, int, str]]:
    return [
        (name, number, address)
        for name in broker_names
        if name in brokers
        for number, address in brokers[name].addresses.items()  # type: ignore[attr-defined] # `BrokerData`
    ]


async def _numbers(session: VerbSession, address: str) -> dict[str, str]:
    """Print the figures of a broker; as in Apache's tool, a broker that does not answer is a row of zeros."""
    try:
        return await session.brokers.runtime(address)
    except OrbitlogError:
        return {}


async def _show_brokers(session: VerbSession, clusters: Mapping[str, list[str]], brokers: Mapping[str, object]) -> None:
    heads = ("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)")
    more = ("#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED")
    session.row(_LIST.format(wait="%-11s", active="%-10s"), *heads, *more)
    for cluster, broker_names in clusters.items():
        for name, number, address in _members(broker_names, brokers):
            cells = _broker_cells(await _numbers(session, address))
            session.row(_LIST.format(wait="%11s", active="%10s"), cluster, name, number, address, *cells)


def _broker_cells(numbers: dict[str, str]) -> tuple[object, ...]:
    def load(pool: str, missing: str = "") -> str:
        size = numbers.get(f"{pool}ThreadPoolQueueSize", missing)
        return f"{size},{numbers.get(f'{pool}ThreadPoolQueueHeadWaitTimeMills', missing)}ms"

    def rate(*keys: str) -> float:
        text = next((numbers[key] for key in keys if numbers.get(key)), "")
        return float((text.split(" ") or ["0"])[0] or 0)

    earliest = int(numbers.get("earliestMessageTimeStamp") or -1)
    # A store without messages reports -1, and Apache's tool computes with it: print the same.
    hours = (time.time() * 1000 - earliest) / 3_600_000 if numbers.get("earliestMessageTimeStamp") else 0.0
    timer = (
        f"{int(numbers.get('timerReadBehind', 0))}-{int(numbers.get('timerOffsetBehind', 0))}"
        f"({int(numbers.get('timerCongestNum', 0)) / 10_000:.1f}w, {float(numbers.get('timerEnqueueTps', 0)):.1f}, "
        f"{float(numbers.get('timerDequeueTps', 0)):.1f})"
    )
    return (
        numbers.get("brokerVersionDesc", ""),
        f"{rate('putTps'):9.2f}({load('send')})",
        f"{rate('getTransferredTps', 'getTransferedTps'):9.2f}({load('pull')}|{load('ack', 'N')})",
        timer,
        numbers.get("pageCacheLockTimeMills", ""),
        f"{hours:2.2f}",
        f"{float(numbers.get('commitLogDiskRatio') or 0):.4f}",
        numbers.get("brokerActive") == "true",
    )


async def broker_status(session: VerbSession, given: FlagValues) -> None:
    if "b" in given:
        for key, value in sorted((await session.brokers.runtime(given["b"])).items()):
            session.row("%-32s: %s", key, value)
        return
    for address in await session.cluster_brokers(given["c"], copies=True):
        for key, value in sorted((await _numbers(session, address)).items()):
            session.row("%-24s %-32s: %s", address, key, value)


async def broker_consume_stats(session: VerbSession, given: FlagValues) -> None:
    seconds = given.number("t", 50_000) / 1000
    stats_of_groups = await session.brokers.consume_stats(given["b"], ordered=given.truth("o"), seconds=seconds)
    heads = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    session.row(_CONSUME, *heads)
    level = given.number("l", 0)
    rows = [(group, stats) for table in stats_of_groups.groups for group, listed in table.items() for stats in listed]
    for group, stats in rows:
        for queue, progress in sorted(stats.offsets.items()):
            diff = progress.broker_queue_offset - progress.consumer_queue_offset
            if diff < level or progress.last_timestamp_ms <= 0:
                continue
            names = (front(queue.topic, 64), group, front(queue.broker_name, 32), queue.queue_id)
            offsets = (progress.broker_queue_offset, progress.consumer_queue_offset)
            session.row(_CONSUME, *names, *offsets, diff, second_time(progress.last_timestamp_ms))
    session.row("\nDiff Total: %d", stats_of_groups.total_diff)


# Settings


async def get_broker_config(session: VerbSession, given: FlagValues) -> None:
    if "b" in given:
        await _show_settings(session, f"{_RULE}{given['b']}{_RULE}", given["b"])
        return
    cluster = given.get("c")
    if cluster is None:
        return
    info = await session.admin.cluster()
    if cluster not in info.clusters:
        session.print(f"[error] {NO_CLUSTER}")
        return
    for name in in_hash_order(info.clusters[cluster]):
        addresses = dict(info.brokers[name].addresses) if name in info.brokers else {}
        master = addresses.pop(0, None)
        session_master = master or "NO_MASTER"
        if master is None:
            session.row("%s", f"{_RULE}Master: {session_master}{_RULE}")
        else:
            await _show_settings(session, f"{_RULE}Master: {master}{_RULE}", master)
        for copy in addresses.values():
            await _show_settings(session, f"{_RULE}My Master: {session_master}=====Slave: {copy}{_RULE}", copy)


async def _show_settings(session: VerbSession, head: str, address: str) -> None:
    session.row("%s", head)
    for key, value in (await session.brokers.settings(address)).items():
        session.row(_SETTING, key, value)
    session.row("")


async def update_broker_config(session: VerbSession, given: FlagValues) -> None:
    if "b" in given:
        addresses = [given["b"]]
    elif "c" in given:
        addresses = await session.cluster_brokers(given["c"], copies="a" in given)
    else:
        addresses = []
    for address in addresses:
        await session.brokers.change_settings(address, {given["k"]: given["v"]})
        session.row("update broker config success, %s", address)


async def get_namesrv_config(session: VerbSession, _: FlagValues) -> None:
    for address in session.name_servers.addresses:
        session.row("%s", f"{_RULE}{address}{_RULE}")
        for key, value in (await session.name_servers.settings(address)).items():
            session.row(_SETTING, key, value)


async def update_namesrv_config(session: VerbSession, given: FlagValues) -> None:
    addresses = session.name_servers.addresses
    for address in addresses:
        await session.name_servers.change_settings(address, {given["k"]: given["v"]})
    session.row("update name server config success!%s\n%s : %s", list(addresses), given["k"], given["v"])


async def wipe_write_perm(session: VerbSession, given: FlagValues) -> None:
    await _write_perm(session, given["b"], "wipe", session.name_servers.wipe_write_permission)


async def add_write_perm(session: VerbSession, given: FlagValues) -> None:
    await _write_perm(session, given["b"], "add", session.name_servers.add_write_permission)


async def _write_perm(
    session: VerbSession, broker_name: str, word: str, ask: Callable[[str, str], Awaitable[int]]
) -> None:
    failure: OrbitlogError | None = None
    for address in session.name_servers.addresses:
        result = f"{word} write perm of broker[%s] in name server[%s]"
        try:
            count = await ask(address, broker_name)
        except OrbitlogError as error:
            session.row(f"{result} Failed", broker_name, address)
            failure = error
            continue
        session.row(f"{result} OK, %d", broker_name, address, count)
    if failure is not None:
        raise failure


async def update_kv_config(session: VerbSession, given: FlagValues) -> None:
    await session.name_servers.put_value(given["s"], given["k"], given["v"])
    session.row("create or update kv config to namespace success.")


async def delete_kv_config(session: VerbSession, given: FlagValues) -> None:
    await session.name_servers.delete_value(given["s"], given["k"])
    session.row("delete kv config from namespace success.")


# Housekeeping


async def clean_expired_cq(session: VerbSession, given: FlagValues) -> None:
    await _clean(session, given, session.brokers.clean_expired_queues)


async def clean_unused_topic(session: VerbSession, given: FlagValues) -> None:
    await _clean(session, given, session.brokers.clean_unused_topics)


async def delete_expired_commit_log(session: VerbSession, given: FlagValues) -> None:
    await _clean(session, given, session.brokers.delete_expired_log)


async def _clean(session: VerbSession, given: FlagValues, clean: Callable[[str], Awaitable[None]]) -> None:
    if "b" in given:
        addresses = [given["b"]]
    elif given.get("c"):
        addresses = await session.cluster_brokers(given["c"])
    else:
        addresses = list((await session.admin.brokers()).values())
    for address in addresses:
        await clean(address)
    session.print("success" if addresses else "false")
