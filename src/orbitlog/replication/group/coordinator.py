"""Coordinators of replica groups: their interface, one in memory, and the text of the setting that names one."""

from __future__ import annotations

from typing import Protocol

from orbitlog.replication.group.etcd_coordinator import EtcdCoordinator
from orbitlog.replication.group.etcd_gateway import EtcdAccess, EtcdGateway
from orbitlog.replication.group.group_record import GroupRecord
from orbitlog.replication.group.group_state import LiveMember, Proposal, Snapshot

_ETCD = "etcd:"


class Coordinator(Protocol):
    """Linearizable record of a group, for one member. An error of `propose` means that its outcome is unknown."""

    async def read(self) -> Snapshot: ...
    async def register(self, member: LiveMember) -> int: ...
    async def renew(self) -> bool: ...
    async def propose(self, proposal: Proposal) -> Snapshot: ...
    async def close(self) -> None: ...


class MemoryCoordinator:
    """Coordinator of members in one process, for trials."""

    def __init__(self, record: GroupRecord, member_id: int) -> None:
        self._record = record
        self._member_id = member_id
        self._session = 0

    async def read(self) -> Snapshot:
        return self._record.read()

    async def register(self, member: LiveMember) -> int:
        self._session = self._record.register(self._member_id, member)
        return self._session

    async def renew(self) -> bool:
        live = self._record.live.get(self._member_id)
        return live is not None and live.session == self._session

    async def propose(self, proposal: Proposal) -> Snapshot:
        return self._record.propose(self._member_id, proposal)

    async def close(self) -> None:
        self._record.expire(self._member_id)


def open_coordinator(
    text: str, cluster: str, broker_name: str, member_id: int, access: EtcdAccess | None = None, *, lease_s: int = 3
) -> EtcdCoordinator:
    """Return the coordinator that `etcd:http://host:port,...` names; raise `ValueError` if the text is invalid."""
    if not text.startswith(_ETCD) or "/" in cluster + broker_name:
        raise ValueError(f"invalid coordinator {text!r} of {cluster}/{broker_name}: expected etcd:http://host:port,...")
    endpoints = text.removeprefix(_ETCD).split(",")
    return EtcdCoordinator(EtcdGateway(endpoints, access), cluster, broker_name, member_id, lease_s)
