"""Access to Apache's controller: leader, identity, heartbeats, state and changes, at a controller in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orbitlog.errors import ConnectFailed, RemotingError, StoreError
from orbitlog.formats import store_tree as tree
from orbitlog.replication.controller.broker_identity import (
    BrokerIdentity,
    IdentityFiles,
    encode_identity,
)
from orbitlog.replication.controller.controller_client import ControllerClient
from orbitlog.replication.controller.controller_coordinator import (
    ControlledBroker,
    ControllerCoordinator,
    revision_of,
)
from orbitlog.replication.group.group_state import GroupState, LiveMember, Proposal
from orbitlog.storefiles.disk import RealDisk
from orbitlog.wire.bodies.body_json import read_body, write_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
from orbitlog.wire.nameserver_headers import BrokerHeartbeatRequest

LEADER, OTHER, MASTER = "leader:1", "other:1", "127.0.0.1:30911"
HEARTBEAT = BrokerHeartbeatRequest(cluster="c", broker_address="me:1", broker_name="b", broker_id=2)


class Controller:
    """Two controllers, of which one leads; it also stands in for connections to brokers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, int]] = []
        self.group: dict[str, Any] | None = {
            "masterBrokerId": 1,
            "masterAddress": MASTER,
            "masterEpoch": 4,
            "syncStateSetEpoch": 9,
            "inSyncReplicas": [{"alive": True, "brokerAddress": MASTER, "brokerId": 1}],
            "notInSyncReplicas": [
                {"alive": True, "brokerAddress": "me:1", "brokerId": 2},
                {"alive": False, "brokerAddress": "dead:1", "brokerId": 3},
            ],
        }
        self.leader = LEADER
        self.taken: set[str] = set()
        self.altered: list[tuple[dict[str, str], Any]] = []
        self.codes: dict[int, int] = {}
        self.oneway: list[str] = []
        self.closed = 0
        self.is_down = False

    async def invoke(self, address: str, request: Command, _: float) -> Command:
        self.requests.append((address, request.code))
        if self.is_down:
            raise ConnectFailed(f"could not connect to {address}")
        code = self.codes.get(request.code, ResponseCode.SUCCESS)
        if address in (LEADER, OTHER) and address != self.leader:
            if request.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
                return Command(ResponseCode.SUCCESS, ext_fields={"controllerLeaderAddress": self.leader})
            return Command(ResponseCode.CONTROLLER_NOT_LEADER, remark="not the leader")
        if code != ResponseCode.SUCCESS:
            return Command(code, remark="refused")
        return self._served(request)

    def _served(self, request: Command) -> Command:
        fields: dict[str, str] = {}
        body = b""
        if request.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            fields = {"controllerLeaderAddress": self.leader}
        elif request.code == RequestCode.CONTROLLER_GET_SYNC_STATE_DATA:
            (name,) = read_body(request.body)  # type: ignore[misc]
            body = write_body({"replicasInfoTable": {} if self.group is None else {name: self.group}})
        elif request.code == RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET:
            self.altered.append((dict(request.ext_fields), read_body(request.body)))
        elif request.code == RequestCode.CONTROLLER_GET_NEXT_BROKER_ID:
            fields = {"nextBrokerId": str(len(self.taken) + 1)}
        elif request.code == RequestCode.CONTROLLER_APPLY_BROKER_ID:
            if request.ext_fields["appliedBrokerId"] in self.taken:
                return Command(ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark="taken")
            self.taken.add(request.ext_fields["appliedBrokerId"])
        elif request.code == RequestCode.EXCHANGE_BROKER_HA_INFO:
            fields = {"masterHaAddress": "127.0.0.1:30912"}
        return Command(ResponseCode.SUCCESS, ext_fields=fields, body=body)

    async def invoke_oneway(self, address: str, _: Command) -> None:
        self.oneway.append(address)

    async def close(self) -> None:
        self.closed += 1


def client_of(controller: Controller) -> ControllerClient:
    return ControllerClient(lambda: controller, (OTHER, LEADER))  # type: ignore[arg-type,return-value]


def coordinator_of(controller: Controller, heartbeat: BrokerHeartbeatRequest | None = HEARTBEAT) -> Any:
    broker = ControlledBroker("c", "b", 2)
    peers: Any = controller
    return ControllerCoordinator(client_of(controller), peers, broker, lambda: heartbeat, lambda: 1000)


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_leader_is_found_through_any_controller_and_looked_for_again_after_an_election() -> None:
    controller = Controller()
    client = client_of(controller)

    async def scenario() -> None:
        await client.ask(RequestCode.CONTROLLER_GET_METADATA_INFO, None)
        assert controller.requests[0] == (OTHER, RequestCode.CONTROLLER_GET_METADATA_INFO)
        assert controller.requests[-1][0] == LEADER
        controller.leader = OTHER
        with pytest.raises(RemotingError, match="not the leader"):
            await client.ask(RequestCode.BROKER_HEARTBEAT, HEARTBEAT)
        await client.ask(RequestCode.BROKER_HEARTBEAT, HEARTBEAT)
        assert controller.requests[-1] == (OTHER, RequestCode.BROKER_HEARTBEAT)
        controller.is_down = True
        with pytest.raises(RemotingError):
            await client.ask(RequestCode.BROKER_HEARTBEAT, HEARTBEAT)
        with pytest.raises(RemotingError, match="does not answer"):
            await client.ask(RequestCode.BROKER_HEARTBEAT, HEARTBEAT)

    run(scenario())


def test_heartbeats_reach_all_controllers_and_only_those_of_an_electable_member_are_sent() -> None:
    controller = Controller()
    assert run(coordinator_of(controller).renew())
    assert (LEADER, RequestCode.BROKER_HEARTBEAT) in controller.requests
    assert controller.oneway == [OTHER]
    silent = Controller()
    assert run(coordinator_of(silent, None).renew())
    assert (silent.requests, silent.oneway) == ([], [])


def test_state_has_master_set_epochs_and_addresses_of_live_members() -> None:
    controller = Controller()
    coordinator = coordinator_of(controller)

    async def scenario() -> Any:
        session = await coordinator.register(LiveMember(0, "ha", "me:1"))
        return session, await coordinator.read()

    session, found = run(scenario())
    assert found.revision == revision_of(4, 9)
    assert found.state == GroupState(4, 1, frozenset((1,)), 0, {1: 0, 2: 0, 3: 0})
    assert found.live == {1: LiveMember(0, "127.0.0.1:30912", MASTER), 2: LiveMember(session, "", "me:1")}


def test_group_without_a_first_master_has_no_state_and_an_unknown_one_is_an_error() -> None:
    controller = Controller()
    controller.group = {"masterEpoch": 0, "syncStateSetEpoch": 0}
    assert run(coordinator_of(controller).read()).state is None
    controller.group = None
    with pytest.raises(RemotingError, match="does not know b"):
        run(coordinator_of(controller).read())


def test_change_of_the_set_compares_both_epochs() -> None:
    controller = Controller()
    state = GroupState(4, 2, frozenset((2, 1)), 0)
    run(coordinator_of(controller).propose(Proposal(revision_of(4, 9), state, 1)))
    ((fields, body),) = controller.altered
    assert (fields["masterBrokerId"], fields["masterEpoch"]) == ("2", "4")
    assert body == {"syncStateSet": [1, 2], "syncStateSetEpoch": 9}


def test_refused_change_answers_with_the_state_and_any_other_failure_leaves_it_open() -> None:
    controller = Controller()
    proposal = Proposal(revision_of(4, 9), GroupState(4, 2, frozenset((2, 1)), 0), 1)
    controller.codes = {RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: ResponseCode.CONTROLLER_BROKER_NOT_ALIVE}
    assert run(coordinator_of(controller).propose(proposal)).revision == revision_of(4, 9)
    controller.codes = {RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: ResponseCode.SYSTEM_ERROR}
    with pytest.raises(RemotingError):
        run(coordinator_of(controller).propose(proposal))


def test_resignation_is_a_heartbeat_and_the_end_of_all_connections() -> None:
    controller = Controller()
    run(coordinator_of(controller, None).resign(HEARTBEAT))
    assert controller.requests[-1] == (LEADER, RequestCode.BROKER_HEARTBEAT)
    assert controller.closed == 1


# Identity


def files_of(root: Path, name: str = "b") -> IdentityFiles:
    return IdentityFiles(RealDisk(), root, "c", name)


def test_id_is_applied_for_once_and_kept_in_javas_file(tmp_path: Path) -> None:
    controller = Controller()
    assert run(files_of(tmp_path).take(client_of(controller), "me:1", lambda: 7)) == 1
    assert (tmp_path / tree.BROKER_IDENTITY).read_bytes() == b"c#b#1"
    assert not (tmp_path / tree.BROKER_IDENTITY_APPLIED).exists()
    assert run(files_of(tmp_path).take(client_of(controller), "me:1", lambda: 8)) == 1
    assert controller.taken == {"1"}


def test_application_that_was_interrupted_is_repeated_with_its_check_code(tmp_path: Path) -> None:
    applied = BrokerIdentity("c", "b", 5, "me:1;7")
    assert encode_identity(applied) == b"c#b#5#me:1;7"
    (tmp_path / tree.BROKER_IDENTITY_APPLIED).write_bytes(encode_identity(applied))
    assert run(files_of(tmp_path).take(client_of(Controller()), "me:1", lambda: 9)) == 5
    assert (tmp_path / tree.BROKER_IDENTITY).read_bytes() == b"c#b#5"


def test_id_that_another_broker_took_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    controller = Controller()
    controller.taken = {"3"}
    (tmp_path / tree.BROKER_IDENTITY_APPLIED).write_bytes(b"c#b#3#me:1;7")
    assert run(files_of(tmp_path).take(client_of(controller), "me:1", lambda: 9)) == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"c#other#1", "that of other in cluster c"),
        (b"x#b#1", "that of b in cluster x"),
        (b"c#b", "is not cluster#name#id"),
        (b"c#b#zero", "is not cluster#name#id"),
        (b"c#b#0", "is not an id that a controller gives"),
        (b"c#b#99999999999999999999", "is not cluster#name#id"),
    ],
)
def test_identity_of_another_broker_and_a_damaged_one_are_refused(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / tree.BROKER_IDENTITY).write_bytes(content)
    with pytest.raises(StoreError, match=sentence):
        files_of(tmp_path).read()
