"""Health checks of `orbitlog cluster health`, by admin requests that any RocketMQ broker answers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from orbitlog.cli.output.display_text import byte_count, counted
from orbitlog.client.admin.administration import Administration
from orbitlog.client.admin.broker_admin import BrokerAdmin
from orbitlog.client.admin.group_admin import GroupAdmin
from orbitlog.errors import OrbitlogError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.names import is_system_group
from orbitlog.wire.admin_headers import TopicGroupRequest
from orbitlog.wire.bodies.body_json import decode_body
from orbitlog.wire.bodies.queue_bodies import ConsumeTimeSpans
from orbitlog.wire.codes import RequestCode

OK, WARNING, PROBLEM = "ok", "warning", "problem"
# By default brokers refuse messages at this ratio; a higher --disk-max raises it.
_DISK_FULL_RATIO = 0.90
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS |= {unit.replace("i", ""): size for unit, size in _UNITS.items()}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits above which a check fails."""

    disk_ratio: float
    lag_bytes: int
    stuck_seconds: float


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    check: str
    name: str
    address: str | None = None
    state: str = OK
    value: str | None = None
    ms: float | None = None
    problem: str | None = None

    def row(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in self.__slots__}


async def all_checks(admin: Administration, limits: Limits) -> AsyncIterator[CheckResult]:
    """Run all checks; a server that does not answer is a result, not an error."""
    for address in admin.link.name_servers:
        yield await _name_server(admin, address)
    brokers = await admin.brokers()
    if not brokers:
        yield CheckResult("broker", "-", state=PROBLEM, problem="no broker has registered with the name servers")
    for name, address in sorted(brokers.items()):
        started = time.perf_counter()
        try:
            numbers = await BrokerAdmin(admin.link).runtime(address)
        except OrbitlogError as error:
            yield CheckResult("broker", name, address, PROBLEM, problem=str(error))
            continue
        ms = round((time.perf_counter() - started) * 1000, 1)
        yield _broker(name, address, numbers, ms)
        yield _disk(name, address, numbers, limits)
        for result in _lags(name, address, numbers, limits):
            yield result
        async for result in _groups(admin, name, address, limits):
            yield result


async def _name_server(admin: Administration, address: str) -> CheckResult:
    started = time.perf_counter()
    try:
        answer = await admin.link.invoke(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    except OrbitlogError as error:
        return CheckResult("name server", "-", address, PROBLEM, problem=str(error))
    from orbitlog.wire.bodies.route_bodies import ClusterInfo

    count = len(decode_body(ClusterInfo, answer.body).brokers)
    ms = round((time.perf_counter() - started) * 1000, 1)
    if not count:
        return CheckResult("name server", "-", address, PROBLEM, "0 brokers", ms, "no broker is registered")
    return CheckResult("name server", "-", address, OK, counted(count, "broker"), ms)


def _broker(name: str, address: str, numbers: dict[str, str], ms: float) -> CheckResult:
    version = numbers.get("brokerVersionDesc", "")
    if numbers.get("brokerActive", "true") != "true":
        return CheckResult("broker", name, address, PROBLEM, version, ms, "not active: a standby replica")
    return CheckResult("broker", name, address, OK, version, ms)


def _disk(name: str, address: str, numbers: dict[str, str], limits: Limits) -> CheckResult:
    try:
        ratio = float(numbers["commitLogDiskRatio"])
    except (KeyError, ValueError):
        return CheckResult("disk", name, address, WARNING, problem="the broker does not report its disk usage")
    value = f"{ratio:.0%} used"
    full = max(_DISK_FULL_RATIO, limits.disk_ratio)
    if ratio >= full:
        return CheckResult(
            "disk", name, address, PROBLEM, value, problem=f"brokers refuse messages at {full:.0%} and above"
        )
    if ratio >= limits.disk_ratio:
        return CheckResult("disk", name, address, WARNING, value, problem=f"more than {limits.disk_ratio:.0%}")
    return CheckResult("disk", name, address, OK, value)


def _lags(name: str, address: str, numbers: dict[str, str], limits: Limits) -> list[CheckResult]:
    lags = (
        ("dispatch lag", "dispatchBehindBytes", "queues and index lag: consumers do not see the newest messages"),
        ("flush lag", "remainHowManyDataToFlush", "this much would be lost in a power cut"),
    )
    results = []
    for check, key, consequence in lags:
        size_bytes = parse_size(numbers.get(key, ""))
        if size_bytes is None:
            results.append(CheckResult(check, name, address, WARNING, problem="the broker does not report it"))
            continue
        bad = size_bytes > limits.lag_bytes
        results.append(
            CheckResult(
                check,
                name,
                address,
                PROBLEM if bad else OK,
                byte_count(size_bytes),
                problem=consequence if bad else None,
            )
        )
    return results


def parse_size(text: str) -> int | None:
    """Parse a size as brokers print it: 0, 12 B, 1.5 MiB, 1.5 MB; return None if it is invalid."""
    number, _, unit = text.strip().partition(" ")
    try:
        return int(float(number) * _UNITS.get(unit, 1))
    except ValueError:
        return None


async def _groups(admin: Administration, broker_name: str, address: str, limits: Limits) -> AsyncIterator[CheckResult]:
    try:
        consume_stats = await BrokerAdmin(admin.link).consume_stats(address)
    except OrbitlogError as error:
        yield CheckResult("groups", broker_name, address, WARNING, problem=f"consumer progress is unavailable: {error}")
        return
    lagging: dict[str, dict[MessageQueue, int]] = {}
    for table in consume_stats.groups:
        for group, all_stats in table.items():
            for stats in all_stats:
                for queue, offsets in stats.offsets.items():
                    lag = offsets.broker_queue_offset - offsets.consumer_queue_offset
                    if lag > 0 and not is_system_group(group):
                        lagging.setdefault(group, {})[queue] = lag
    stuck = 0
    for group, queues in sorted(lagging.items()):
        result = await _group(admin, address, group, queues, limits)
        if result is not None:
            stuck += 1
            yield result
    if not stuck:
        yield CheckResult("groups", broker_name, address, OK, f"{counted(len(lagging), 'group')} behind, none stuck")


async def _group(
    admin: Administration, address: str, group: str, queues: dict[MessageQueue, int], limits: Limits
) -> CheckResult | None:
    lag = counted(sum(queues.values()), "message") + " behind"
    try:
        members = len((await GroupAdmin(admin.link).connections(group, address)).connections)
    except OrbitlogError:
        members = 0
    waited_s = 0.0
    for topic in {queue.topic for queue in queues}:
        waited_s = max(waited_s, await _waited_seconds(admin, address, group, topic))
    if waited_s < limits.stuck_seconds:
        return None
    since = f"the next message has waited for {waited_s:.0f} s"
    if members:
        return CheckResult(
            "group", group, address, PROBLEM, lag, problem=f"stuck: {since}, {counted(members, 'member')}"
        )
    return CheckResult("group", group, address, WARNING, lag, problem=f"no members; {since}")


async def _waited_seconds(admin: Administration, address: str, group: str, topic: str) -> float:
    header = TopicGroupRequest(topic=topic, group=group)
    try:
        answer = await admin.link.invoke(address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
    except OrbitlogError:
        return 0.0
    return max((span.delay_ms for span in decode_body(ConsumeTimeSpans, answer.body).spans), default=0) / 1000
