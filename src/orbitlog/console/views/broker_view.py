"""Brokers and name servers of a cluster: addresses, versions, rates, disk, lags, and settings that differ."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from orbitlog.console.sources.cluster_sample import BrokerSample, ClusterSample
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.sources.lag_history import broker_rate
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import Answer, ConsoleError, Listing, Missing, missing_parts
from orbitlog.console.views.broker_parts import ReplicationPart, UserRow, read_replication, read_users
from orbitlog.errors import OrbitlogError
from orbitlog.settings.secret_settings import shown_settings

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_UNITS |= {unit.replace("i", ""): size for unit, size in _UNITS.items()}


class BrokerRow(Answer, kw_only=True):
    """One broker process."""

    name: str
    cluster: str
    broker_id: int
    address: str
    answers: bool
    problem: str | None = None
    as_of: int | None = None
    version: str | None = None
    started: int | None = None
    in_per_second: float | None = None
    out_per_second: float | None = None
    disk_used_ratio: float | None = None
    log_bytes: int | None = None
    earliest_message: int | None = None
    dispatch_lag_bytes: int | None = None
    flush_lag_bytes: int | None = None
    topics: int | None = None
    groups: int | None = None


class NameServerRow(Answer, kw_only=True):
    """One name server; `missing` are brokers that only other name servers know."""

    address: str
    answers: bool
    problem: str | None = None
    as_of: int | None = None
    brokers: int | None = None
    missing: list[str] = msgspec.field(default_factory=list)


class BrokerListing(Listing, kw_only=True):
    """All brokers and name servers."""

    items: list[BrokerRow]
    name_servers: list[NameServerRow]


class SettingRow(Answer, kw_only=True):
    """One setting: its value at each broker, in the order of `brokers`; None if a broker does not have it."""

    key: str
    values: list[str | None]
    differs: bool


class SettingsAnswer(Answer, kw_only=True):
    """Settings of all masters side by side; secret values are masked."""

    brokers: list[str]
    settings: list[SettingRow]
    differing: int
    as_of: int
    problems: list[Missing] = msgspec.field(default_factory=list)


class RuntimeAnswer(Answer, kw_only=True):
    """All run-time numbers of one broker, as it prints them; its replication, and for admins its users."""

    broker: BrokerRow
    numbers: dict[str, str]
    replication: ReplicationPart | None
    users: list[UserRow] | None


async def list_brokers(source: ClusterSource) -> BrokerListing:
    sample = await source.sample()
    rows = [broker_row(broker) for broker in sample.brokers]
    problems = missing_parts(sample)
    return BrokerListing(
        total=len(rows),
        as_of=sample.as_of_ms,
        complete=not problems,
        problems=problems,
        items=rows,
        name_servers=name_server_rows(sample),
    )


async def show_broker(source: ClusterSource, address: str, *, with_users: bool) -> RuntimeAnswer:
    sample = await source.sample()
    broker = known_broker(sample, address)
    answers = broker.runtime.problem is None
    return RuntimeAnswer(
        broker=broker_row(broker),
        numbers=dict(sorted((broker.runtime.value or {}).items())),
        replication=await read_replication(source, broker.address) if answers else None,
        users=await read_users(source, broker.address) if answers and with_users else None,
    )


def known_broker(sample: ClusterSample, address: str) -> BrokerSample:
    """Return the broker with that address; only registered ones are ever asked."""
    for broker in sample.brokers:
        if broker.address == address:
            return broker
    raise ConsoleError(404, f"no broker with the address {address[:80]} is registered in this cluster")


async def compare_settings(source: ClusterSource) -> SettingsAnswer:
    """Read the settings of every master now, and mark those that differ."""
    sample = await source.sample()
    masters = list(sample.masters)
    read = await asyncio.gather(*(_settings(source, broker) for broker in masters))
    tables = [table for table in read if not isinstance(table, Missing)]
    names = [broker.name for broker, table in zip(masters, read, strict=True) if not isinstance(table, Missing)]
    keys = sorted({key for table in tables for key in table})
    rows = []
    for key in keys:
        values = [table.get(key) for table in tables]
        rows.append(SettingRow(key=key, values=values, differs=len(set(values)) > 1))
    return SettingsAnswer(
        brokers=names,
        settings=rows,
        differing=sum(row.differs for row in rows),
        as_of=source.now_ms,
        problems=[table for table in read if isinstance(table, Missing)],
    )


async def _settings(source: ClusterSource, broker: BrokerSample) -> dict[str, str] | Missing:
    try:
        return shown_settings(await source.brokers.settings(broker.address))
    except OrbitlogError as error:
        return Missing(server=f"broker {broker.name} ({broker.address})", reason=problem_sentence(error))


def broker_row(broker: BrokerSample) -> BrokerRow:
    """Return the row of a broker; its figures are those of its last answer."""
    numbers = broker.runtime.value or {}
    first, last = _integer(numbers, "commitLogMinOffset"), _integer(numbers, "commitLogMaxOffset")
    return BrokerRow(
        name=broker.name,
        cluster=broker.cluster,
        broker_id=broker.broker_id,
        address=broker.address,
        answers=broker.runtime.problem is None,
        problem=broker.runtime.problem,
        as_of=broker.runtime.as_of_ms,
        version=numbers.get("brokerVersionDesc"),
        started=_integer(numbers, "bootTimestamp"),
        in_per_second=broker_rate(numbers, "putTps"),
        out_per_second=broker_rate(numbers, "getTransferredTps"),
        disk_used_ratio=_number(numbers, "commitLogDiskRatio"),
        log_bytes=None if first is None or last is None else last - first,
        earliest_message=_timestamp(numbers, "earliestMessageTimeStamp"),
        dispatch_lag_bytes=parse_size(numbers.get("dispatchBehindBytes", "")),
        flush_lag_bytes=parse_size(numbers.get("remainHowManyDataToFlush", "")),
        topics=None if broker.topics.value is None else len(broker.topics.value),
        groups=None if broker.groups.value is None else len(broker.groups.value),
    )


def name_server_rows(sample: ClusterSample) -> list[NameServerRow]:
    everywhere = {name for server in sample.name_servers for name in server.brokers.value or ()}
    rows = []
    for server in sample.name_servers:
        part = server.brokers
        known = part.value
        rows.append(
            NameServerRow(
                address=server.address,
                answers=part.problem is None,
                problem=part.problem,
                as_of=part.as_of_ms,
                brokers=None if known is None else len(known),
                missing=[] if known is None or part.problem is not None else sorted(everywhere - known.keys()),
            )
        )
    return rows


def parse_size(text: str) -> int | None:
    """Parse a size as brokers print it: 0, 12 B, 1.5 MiB, 1.5 MB; return None if it is invalid."""
    number, _, unit = text.strip().partition(" ")
    try:
        return int(float(number) * _UNITS.get(unit, 1))
    except (ValueError, OverflowError):
        return None


def _integer(numbers: Mapping[str, str], key: str) -> int | None:
    text = numbers.get(key, "")
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 20 else None


def _timestamp(numbers: Mapping[str, str], key: str) -> int | None:
    value = _integer(numbers, key)
    return value if value is not None and value > 0 else None  # brokers print -1 for an empty log


def _number(numbers: Mapping[str, str], key: str) -> float | None:
    try:
        return float(numbers[key])
    except (KeyError, ValueError):
        return None
