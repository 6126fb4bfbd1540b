"""Replica groups of a cluster, as their members report them; handovers and forced elections."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orbitlog.errors import ClientError, NoRoute, RemotingError, RequestTimeout
from orbitlog.wire.bodies.body_json import read_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.replication.group_headers import ElectMasterRequest

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration

_SECONDS = 3.0
_POLL_S = 0.1
_ACCEPTED = (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member of a group; offsets are -1 if it does not answer."""

    member_id: int
    address: str
    is_alive: bool
    is_in_sync: bool
    role: str = "unknown"
    epoch: int = 0
    log_end: int = -1
    confirmed_to: int = -1
    kept_messages: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group: its master, if that is alive, and its members."""

    name: str
    epoch: int
    master: int | None
    members: tuple[MemberView, ...]

    def lag_bytes(self, member: MemberView) -> int:
        """Return the bytes that a member lacks of the master's log; -1 if one of them does not answer."""
        ends = [other.log_end for other in self.members if other.member_id == self.master]
        return max(ends[0] - member.log_end, 0) if ends and min(ends[0], member.log_end) >= 0 else -1


class ReplicaGroups:
    """Requests to the members of replica groups."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin

    async def groups(self, name: str | None = None) -> list[GroupView]:
        """Return the groups with a member that is registered, or the one of this name."""
        brokers = (await self._admin.cluster()).brokers
        views = []
        for broker_name, data in sorted(brokers.items()):
            if name in (None, broker_name):
                view = await self._group(broker_name, list(data.addresses.values()))
                views += [] if view is None else [view]
        return views

    async def _group(self, name: str, addresses: list[str]) -> GroupView | None:
        """Return one group from the newest state that a member knows; None if the brokers are in no group."""
        reports = {address: report for address in addresses if (report := await self._report(address)) is not None}
        states = [state for report in reports.values() if (state := _state_of(report, name))]
        if not states:
            return None
        newest = max(states, key=lambda state: _number(state.get("syncStateSetEpoch")))
        members = []
        for is_in_sync, key in ((True, "inSyncReplicas"), (False, "notInSyncReplicas")):
            for replica in _objects(newest.get(key)):
                members.append(await self._member(replica, is_in_sync, reports))
        master = newest.get("masterBrokerId")
        is_alive = any(member.is_alive and member.member_id == master for member in members)
        return GroupView(
            name,
            _number(newest.get("masterEpoch")),
            _number(master) if is_alive else None,
            tuple(sorted(members, key=lambda member: member.member_id)),
        )

    async def _member(
        self, replica: Mapping[str, Any], is_in_sync: bool, reports: dict[str, Mapping[str, Any]]
    ) -> MemberView:
        address, is_alive = str(replica.get("brokerAddress") or ""), replica.get("alive") is True
        report = reports.get(address)
        if report is None and address:
            report = await self._report(address)
        own = report.get("orbitlogMember") if report is not None else None
        known = MemberView(_number(replica.get("brokerId")), address, is_alive, is_in_sync)
        if not isinstance(own, dict) or _number(own.get("memberId")) != known.member_id:
            return known
        return MemberView(
            known.member_id,
            address,
            is_alive,
            is_in_sync,
            role=str(own.get("role")),
            epoch=_number(own.get("epoch")),
            log_end=_number(own.get("logEnd")),
            confirmed_to=_number(own.get("confirmedTo")),
            kept_messages=sum(_number(tail.get("messages")) for tail in _objects(own.get("keptTails"))),
            problem=str(own.get("reason") or own.get("coordinatorProblem") or ""),
        )

    async def _report(self, address: str) -> Mapping[str, Any] | None:
        """Return what a broker reports about its group; None if it does not respond or is in no group."""
        try:
            answer = await self._admin.link.invoke(
                address, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, seconds=_SECONDS, accept=_ACCEPTED
            )
        except RemotingError:
            return None
        body = read_body(answer.body) if answer.code == ResponseCode.SUCCESS and answer.body else None
        return {str(key): value for key, value in body.items()} if isinstance(body, dict) else None

    async def hand_over(self, name: str, member_id: int, seconds: float) -> GroupView:
        """Make a member the master; return the group when it is. Raise `ClientError` without a live master."""
        group = await self._known(name)
        master = next((member for member in group.members if member.member_id == group.master), None)
        if master is None:
            raise ClientError(f"replica group {name} has no master that is alive, so nothing can be handed over")
        await self._elect(master.address, ElectMasterRequest(broker_name=name, broker_id=member_id))
        return await self._elected(name, member_id, seconds)

    async def force(self, name: str, member_id: int, address: str | None, seconds: float) -> GroupView:
        """Elect a member regardless of the in-sync set; return the group when it is the master."""
        if address is None:
            members = (await self._known(name)).members
            address = next((member.address for member in members if member.member_id == member_id), "")
        if not address:
            raise ClientError(f"member {member_id} of {name} is not alive; start it, or state its --address")
        await self._elect(address, ElectMasterRequest(broker_name=name, broker_id=member_id, accepts_loss=True))
        return await self._elected(name, member_id, seconds)

    async def _known(self, name: str) -> GroupView:
        groups = await self.groups(name)
        if not groups:
            raise NoRoute(f"no registered broker is a member of replica group {name}")
        return groups[0]

    async def _elect(self, address: str, header: ElectMasterRequest) -> None:
        await self._admin.link.invoke(address, RequestCode.CONTROLLER_ELECT_MASTER, header, seconds=_SECONDS)

    async def _elected(self, name: str, member_id: int, seconds: float) -> GroupView:
        deadline = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < deadline:
            for group in await self.groups(name):
                if group.master == member_id:
                    return group
            await asyncio.sleep(_POLL_S)
        raise RequestTimeout(f"member {member_id} is not the master of {name} after {seconds:g} s; see its log")


def _state_of(report: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = report.get("replicasInfoTable")
    state = table.get(name) if isinstance(table, dict) else None
    return state if isinstance(state, dict) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
