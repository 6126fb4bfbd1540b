"""Verbs about replicas and groups of Apache's controller. Mirrors Java `tools.command.ha` and `controller`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from orbitlog.cli.mqadmin.java_print import human_time, in_hash_order
from orbitlog.cli.mqadmin.verb_flags import FlagValues
from orbitlog.cli.mqadmin.verb_session import NO_CLUSTER, VerbFailed, VerbSession
from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.replication.controller_bodies import encode_names
from orbitlog.wire.replication.controller_headers import ControllerElectRequest, ControllerMetadata

_SECONDS = 5.0
_SLAVES = "%-32s  %-16s %16s %16s %16s %16s"
_SLAVE = "%-32s  %-16d %16d %16.2f %16s %16d"

Fields = Mapping[str, Any]


async def ha_status(session: VerbSession, given: FlagValues) -> None:
    async def show() -> None:
        for address in await session.targets(given.get("b"), given.get("c")):
            await _show_status(session, address)

    await _repeated(show, given)


async def _show_status(session: VerbSession, address: str) -> None:
    status = _fields(await _body(session, address, RequestCode.GET_BROKER_HA_STATUS))
    if status.get("master"):
        slaves = status.get("haConnectionInfo") or []
        numbers = (address, status.get("masterCommitLogMaxOffset", 0), len(slaves), status.get("inSyncSlaveNums", 0))
        session.row("\n#MasterAddr\t%s\n#MasterCommitLogMaxOffset\t%d\n#SlaveNum\t%d\n#InSyncSlaveNum\t%d", *numbers)
        heads = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere")
        session.row(_SLAVES, *heads)
        for slave in slaves:
            state = "OK" if slave.get("inSync") else "Fall Behind"
            kib = slave.get("transferredByteInSecond", 0) / 1024
            cells = (
                slave.get("slaveAckOffset", 0),
                slave.get("diff", 0),
                kib,
                state,
                slave.get("transferFromWhere", 0),
            )
            session.row(_SLAVE, slave.get("addr"), *cells)
        return
    client = _fields(status.get("haClientRuntimeInfo") or {})
    session.row("\n#MasterAddr\t%s", client.get("masterAddr"))
    session.row("#CommitLogMaxOffset\t%d", client.get("maxOffset", 0))
    session.row("#TransferSpeed(KB/s)\t%.2f", client.get("transferredByteInSecond", 0) / 1024)
    session.row("#LastReadTime\t%s", human_time(client.get("lastReadTimestamp", 0)))
    session.row("#LastWriteTime\t%s", human_time(client.get("lastWriteTimestamp", 0)))
    session.row("#MasterFlushOffset\t%s", client.get("masterFlushOffset", 0))


async def get_sync_state_set(session: VerbSession, given: FlagValues) -> None:
    async def show() -> None:
        names = await _broker_names(session, given)
        leader = await _leader(session, given["a"])
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        answer = _fields(await _body(session, leader, code, body=encode_names(names)))
        table = _fields(answer.get("replicasInfoTable") or {})
        for name in in_hash_order(table):
            _show_group(session, name, _fields(table[name]))

    await _repeated(show, given)


def _show_group(session: VerbSession, name: str, group: Fields) -> None:
    in_sync, others = group.get("inSyncReplicas") or [], group.get("notInSyncReplicas") or []
    session.row(
        "\n#brokerName\t%s\n#MasterBrokerId\t%s\n#MasterAddr\t%s\n#MasterEpoch\t%d\n#SyncStateSetEpoch\t%d"
        "\n#SyncStateSetNums\t%d",
        *(name, group.get("masterBrokerId"), group.get("masterAddress")),
        *(group.get("masterEpoch", 0), group.get("syncStateSetEpoch", 0), len(in_sync)),
    )
    for title, replicas in (("InSyncReplica", in_sync), ("NotInSyncReplica", others)):
        for replica in replicas:
            session.row(
                "\n%s:\tReplicaIdentity{brokerName='%s', brokerId=%d, brokerAddress='%s', alive=%s}",
                *(title, replica.get("brokerName"), replica.get("brokerId"), replica.get("brokerAddress")),
                replica.get("alive"),
            )


async def get_broker_epoch(session: VerbSession, given: FlagValues) -> None:
    async def show() -> None:
        info = await session.admin.cluster()
        for name in await _broker_names(session, given):
            if name not in info.brokers:
                raise VerbFailed(NO_CLUSTER)
            for address in in_hash_order(info.brokers[name].addresses.values()):
                body = await _body(session, address, RequestCode.GET_BROKER_EPOCH_CACHE)
                _show_epochs(session, address, _fields(body))

    await _repeated(show, given)


def _show_epochs(session: VerbSession, address: str, cache: Fields) -> None:
    identity = (cache.get("clusterName"), cache.get("brokerName"), address, cache.get("brokerId"))
    session.print("\n#clusterName\t%s\n#brokerName\t%s\n#brokerAddr\t%s\n#brokerId\t%d", *identity)
    entries = cache.get("epochList") or []
    for number, entry in enumerate(entries, 1):
        end = cache.get("maxOffset", 0) if number == len(entries) else entry.get("endOffset", 0)
        session.print(
            "\n#Epoch: EpochEntry{epoch=%d, startOffset=%d, endOffset=%d}",
            *(entry.get("epoch", 0), entry.get("startOffset", 0), end),
        )
    session.print("\n")


async def elect_master(session: VerbSession, given: FlagValues) -> None:
    cluster, name = given["c"], given["bn"]
    header = ControllerElectRequest(
        cluster=cluster,
        broker_name=name,
        broker_id=given.number("b", -1),
        designates=True,
        invoke_time_ms=time.time_ns() // 1_000_000,
    )
    leader = await _leader(session, given["a"])
    answer = await session.admin.link.invoke(leader, RequestCode.CONTROLLER_ELECT_MASTER, header, seconds=_SECONDS)
    fields = answer.ext_fields
    session.print("\n#ClusterName\t%s\n#BrokerName\t%s", cluster, name)
    session.print("\n#BrokerMasterAddr\t%s\n#MasterEpoch\t%s", fields.get("masterAddress"), fields.get("masterEpoch"))
    session.print("\n#SyncStateSetEpoch\t%s\n", fields.get("syncStateSetEpoch"))
    group = _fields(_fields(read_body(answer.body) if answer.body else {}).get("brokerMemberGroup") or {})
    for broker_id, address in _fields(group.get("brokerAddrs") or {}).items():
        session.print("\t#Broker\t%s\t%s\n", broker_id, address)


async def _leader(session: VerbSession, addresses: str) -> str:
    """Return the address of the leader, which the first of the given controllers names."""
    address = addresses.split(";", maxsplit=1)[0].strip()
    answer = await session.admin.link.invoke(address, RequestCode.CONTROLLER_GET_METADATA_INFO, None, seconds=_SECONDS)
    leader = ControllerMetadata.from_ext_fields(answer.ext_fields).leader_address
    if not leader:
        raise VerbFailed(f"the controllers at {address} have no leader now")
    return leader


async def _broker_names(session: VerbSession, given: FlagValues) -> list[str]:
    if "b" in given:
        return [given["b"]]
    clusters = (await session.admin.cluster()).clusters
    if given["c"] not in clusters:
        raise VerbFailed(NO_CLUSTER)
    return in_hash_order(clusters[given["c"]])


async def _body(session: VerbSession, address: str, code: RequestCode, *, body: bytes = b"") -> object:
    answer = await session.admin.link.invoke(address, code, body=body, seconds=_SECONDS)
    return read_body(answer.body) if answer.body else {}


def _fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise VerbFailed(f"the answer has {str(value)[:40]!r} where an object is expected")
    return value


async def _repeated(show: Callable[[], Awaitable[None]], given: FlagValues) -> None:
    while True:
        await show()
        if "i" not in given:
            return
        await asyncio.sleep(given.number("i", 3))
