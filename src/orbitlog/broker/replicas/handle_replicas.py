"""Replica requests: state of a group, its epochs, handovers and forced elections, under the codes of Java's controller.

A member of a group answers what Java asks of its controller; the answer has further fields about the member itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from orbitlog.broker.replicas.member_log import StoreLog
from orbitlog.broker.replicas.table_barrier import TableBarrier
from orbitlog.errors import RequestRefused
from orbitlog.formats.tables.loose_json import Json
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.incoming_requests import LongPoll
from orbitlog.replication.group.group_state import GroupState
from orbitlog.replication.group.member_driver import MemberDriver
from orbitlog.wire.bodies.body_json import write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.replication.group_headers import TABLES_FIELD, ElectMasterRequest, TablesRequest

REPLICA_CODES = (
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.GET_BROKER_EPOCH_CACHE,
)
CONTROLLED_CODES = (*REPLICA_CODES, RequestCode.NOTIFY_BROKER_ROLE_CHANGED)


class GroupNode(Protocol):
    """The member that these requests are about."""

    broker_name: str
    cluster_name: str

    @property
    def driver(self) -> MemberDriver: ...
    @property
    def store_log(self) -> StoreLog: ...
    @property
    def barrier(self) -> TableBarrier | None:
        """Changes of tables, while this member serves as master."""

    def update_gate(self) -> None: ...
    def admits(self, peer_ip: str) -> bool: ...


class ReplicaHandlers:
    """Serves the requests about one member and its group."""

    def __init__(self, node: GroupNode) -> None:
        self._node = node

    @property
    def table(self) -> Mapping[int, Handler]:
        return {
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.status,
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
        }

    def status(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        """Return the group's state, as this member last read it, and the member itself; of a slave's, its tables."""
        if TABLES_FIELD in request.ext_fields:
            return LongPoll(self._tables(connection, request))
        state = self._node.driver.member.context.desk.state
        table: Json = {} if state is None else {self._node.broker_name: self._group(state)}
        body: Json = {"replicasInfoTable": table, "orbitlogMember": self._member()}
        return response_to(request, ResponseCode.SUCCESS, body=write_body(body))

    async def _tables(self, connection: Connection, request: Command) -> Answer:
        """Return the last change of the tables to a slave. Its reports count, so it must be a listed member."""
        header = TablesRequest.from_ext_fields(request.ext_fields)
        barrier = self._node.barrier
        if barrier is None or not self._node.admits(connection.peer.rpartition(":")[0]):
            raise RequestRefused(ResponseCode.CONTROLLER_NOT_LEADER, "this broker has no tables for the caller now")
        answer = await barrier.poll(header)
        return response_to(request, ResponseCode.SUCCESS, ext_fields=answer.to_ext_fields())

    def _group(self, state: GroupState) -> Json:
        live = self._node.driver.member.context.desk.live
        known = sorted({*state.members, *state.in_sync, *live})

        def replica(member_id: int) -> Json:
            return {
                "alive": member_id in live,
                "brokerAddress": live[member_id].address if member_id in live else "",
                "brokerId": member_id,
                "brokerName": self._node.broker_name,
            }

        master = state.master
        return {
            "inSyncReplicas": [replica(member_id) for member_id in known if member_id in state.in_sync],
            "masterAddress": live[master].address if master is not None and master in live else "",
            "masterBrokerId": master,
            "masterEpoch": state.epoch,
            "notInSyncReplicas": [replica(member_id) for member_id in known if member_id not in state.in_sync],
            "syncStateSetEpoch": self._node.driver.member.context.desk.revision,
        }

    def _member(self) -> Json:
        node, member = self._node, self._node.driver.member
        following = member.following
        files, log = node.store_log.files, node.store_log
        tails: list[Json] = [
            {
                "epoch": tail.epoch,
                "physicalOffset": tail.physical_offset,
                "end": tail.end,
                "messages": files.count_messages(tail),
                "file": tail.path.name,
            }
            for tail in files.kept_tails()
        ]
        return {
            "memberId": member.context.member_id,
            "role": member.role.value,
            "reason": member.reason or ("" if following is None else following.reason),
            "epoch": member.log.history.last_epoch,
            "logStart": log.start,
            "logEnd": log.end,
            "flushedTo": log.flushed_to,
            "confirmedTo": member.log.confirmed_to,
            "coordinatorProblem": node.driver.problem,
            "keptTails": tails,
        }

    def epochs(self, _: Connection, request: Command) -> Answer:
        """Return the epochs of this member's log, as a Java broker does."""
        log = self._node.driver.member.log
        entries = log.history.entries
        ends = [entry.start_physical_offset for entry in entries[1:]] + [log.end]
        epochs: list[Json] = [
            {"endOffset": end, "epoch": entry.epoch, "startOffset": entry.start_physical_offset}
            for entry, end in zip(entries, ends, strict=True)
        ]
        body: Json = {
            "brokerId": self._node.driver.member.context.member_id,
            "brokerName": self._node.broker_name,
            "clusterName": self._node.cluster_name,
            "epochList": epochs,
            "maxOffset": log.end,
        }
        return response_to(request, ResponseCode.SUCCESS, body=write_body(body))

    def elect(self, _: Connection, request: Command) -> Answer:
        """Begin a handover to a member; with the field that accepts loss, elect this member regardless of the set."""
        header = ElectMasterRequest.from_ext_fields(request.ext_fields)
        if header.accepts_loss:
            self._force(header.broker_id)
        else:
            self._hand_over(header.broker_id)
        return response_to(request, ResponseCode.SUCCESS)

    def _force(self, target: int) -> None:
        driver = self._node.driver
        if target != driver.member.context.member_id:
            raise RequestRefused(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"a forced election of member {target} must be sent to that member; this is member"
                f" {driver.member.context.member_id}",
            )
        if driver.member.leadership is not None:
            raise RequestRefused(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, f"member {target} is the master already")
        driver.post(driver.member.force_election)

    def _hand_over(self, target: int) -> None:
        driver = self._node.driver
        state = driver.member.context.desk.state
        if driver.member.leadership is None:
            master = "none" if state is None or state.master is None else str(state.master)
            raise RequestRefused(
                ResponseCode.CONTROLLER_INVALID_REQUEST, f"only the master hands over; the master is member {master}"
            )
        if driver.member.context.member_id == target:
            return
        accepted: list[bool] = []
        driver.post(lambda: accepted.append(driver.member.hand_over(target)))
        if accepted != [True]:
            raise RequestRefused(
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"member {target} is not in sync and connected; see `orbitlog replica status`",
            )
        if self._node.barrier is not None:
            self._node.barrier.wake()
        self._node.update_gate()
