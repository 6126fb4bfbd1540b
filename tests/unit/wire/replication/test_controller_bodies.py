"""Bodies and headers of Apache's controller: what 5.5.0 brokers and its controller exchange, and invalid ones."""

from __future__ import annotations

import pytest

from orbitlog.errors import FormatError
from orbitlog.wire.nameserver_headers import BrokerHeartbeatRequest
from orbitlog.wire.replication.controller_bodies import (
    Replica,
    decode_master_log_end,
    decode_replicas_info,
    encode_names,
    encode_sync_state_set,
)
from orbitlog.wire.replication.controller_headers import (
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    ControllerElectRequest,
    ControllerMetadata,
    NextBrokerIdResponse,
    RegisterMemberRequest,
)

INFO = (
    b'{"replicasInfoTable":{"broker-a":{"inSyncReplicas":[{"alive":true,"brokerAddress":"127.0.0.1:30911","brokerId":1,'
    b'"brokerName":"broker-a"}],"masterAddress":"127.0.0.1:30911","masterBrokerId":1,"masterEpoch":4,'
    b'"notInSyncReplicas":[{"alive":false,"brokerAddress":"127.0.0.1:31911","brokerId":2,"brokerName":"broker-a"}],'
    b'"syncStateSetEpoch":9}}}'
)


def test_body_of_a_change_of_the_set_equals_the_one_of_a_java_broker() -> None:
    assert encode_sync_state_set(frozenset((2, 1)), 1) == b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
    assert encode_names(["broker-a"]) == b'["broker-a"]'


def test_info_of_a_group_is_read() -> None:
    info = decode_replicas_info(INFO, "broker-a")
    assert info is not None
    assert info[:4] == (1, "127.0.0.1:30911", 4, 9)
    assert info.replicas == (
        Replica(1, "127.0.0.1:30911", is_alive=True, is_in_sync=True),
        Replica(2, "127.0.0.1:31911", is_alive=False, is_in_sync=False),
    )


def test_info_of_a_group_without_master_and_of_an_unknown_one() -> None:
    body = b'{"replicasInfoTable":{"a":{"inSyncReplicas":[],"masterEpoch":0,"syncStateSetEpoch":0}}}'
    info = decode_replicas_info(body, "a")
    assert info is not None and (info.master_id, info.master_address, info.replicas) == (None, "", ())
    assert decode_replicas_info(body, "b") is None
    assert decode_replicas_info(b"", "b") is None


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b'{"replicasInfoTable":[1]}',
        b'{"replicasInfoTable":{"broker-a":1}}',
        INFO.replace(b'"masterEpoch":4', b'"masterEpoch":-1'),
        INFO.replace(b'"masterEpoch":4', b'"masterEpoch":true'),
        INFO.replace(b'"syncStateSetEpoch":9', b'"syncStateSetEpoch":2147483648'),
        INFO.replace(b'"brokerId":2', b'"brokerId":"2"'),
        INFO.replace(b'"notInSyncReplicas":[', b'"notInSyncReplicas":[3,'),
        INFO.replace(b'"brokerAddress":"127.0.0.1:31911"', b'"brokerAddress":7'),
        INFO[:-1],
    ],
)
def test_invalid_info_is_a_format_error(body: bytes) -> None:
    with pytest.raises(FormatError):
        decode_replicas_info(body, "broker-a")


def test_info_with_too_many_replicas_is_refused() -> None:
    replica = b'{"alive":true,"brokerAddress":"a:1","brokerId":1}'
    body = b'{"replicasInfoTable":{"a":{"inSyncReplicas":[' + b",".join([replica] * 257) + b"]}}}"
    with pytest.raises(FormatError, match="at most 256"):
        decode_replicas_info(body, "a")


def test_end_of_a_masters_log_is_read_from_its_ha_status() -> None:
    assert decode_master_log_end(b'{"haConnectionInfo":[],"master":true,"masterCommitLogMaxOffset":930}') == 930
    with pytest.raises(FormatError):
        decode_master_log_end(b"{}")


def test_headers_have_the_fields_of_javas() -> None:
    """The fields of `protocol.header.controller` and of a heartbeat, as 5.5.0 brokers send them."""
    heartbeat = BrokerHeartbeatRequest(
        cluster="DefaultCluster",
        broker_address="127.0.0.1:30911",
        broker_name="broker-a",
        broker_id=1,
        epoch=-1,
        max_physical_offset=0,
        confirm_physical_offset=0,
        heartbeat_timeout_ms=10_000,
        election_priority=2147483647,
    )
    assert heartbeat.to_ext_fields() == {
        "brokerId": "1",
        "electionPriority": "2147483647",
        "confirmOffset": "0",
        "heartbeatTimeoutMills": "10000",
        "clusterName": "DefaultCluster",
        "brokerAddr": "127.0.0.1:30911",
        "epoch": "-1",
        "maxOffset": "0",
        "brokerName": "broker-a",
    }
    applied = ApplyBrokerIdRequest(
        cluster="c", broker_name="b", broker_id=1, check_code="127.0.0.1:30911;1794842968181"
    )
    assert applied.to_ext_fields() == {
        "clusterName": "c",
        "brokerName": "b",
        "appliedBrokerId": "1",
        "registerCheckCode": "127.0.0.1:30911;1794842968181",
    }
    register = RegisterMemberRequest(cluster="c", broker_name="b", broker_id=1, broker_address="a:1", invoke_time_ms=5)
    assert set(register.to_ext_fields()) == {"clusterName", "brokerName", "brokerId", "brokerAddress", "invokeTime"}
    alter = AlterSyncStateSetRequest(broker_name="b", master_id=1, master_epoch=2, invoke_time_ms=5)
    assert set(alter.to_ext_fields()) == {"brokerName", "masterBrokerId", "masterEpoch", "invokeTime"}
    elect = ControllerElectRequest(cluster="c", broker_name="b", broker_id=1, invoke_time_ms=5)
    assert elect.to_ext_fields()["designateElect"] == "false"


def test_answers_of_a_controller_are_read() -> None:
    fields = {
        "controllerLeaderId": "n0",
        "controllerLeaderAddress": "127.0.0.1:28878",
        "isLeader": "true",
        "peers": "n0:127.0.0.1:28878;",
        "group": "group1",
    }
    assert ControllerMetadata.from_ext_fields(fields).leader_address == "127.0.0.1:28878"
    assert ControllerMetadata.from_ext_fields({"isLeader": "false"}).leader_address == ""
    assert NextBrokerIdResponse.from_ext_fields({"nextBrokerId": "1", "clusterName": "c"}).broker_id == 1
