"""Bodies of Apache's controller: the in-sync set of a group, and the group as a whole (`BrokerReplicasInfo`)."""

from __future__ import annotations

from typing import NamedTuple

from orbitlog.errors import BadField
from orbitlog.formats.java import INT_MAX, LONG_MAX
from orbitlog.formats.tables.loose_json import Json
from orbitlog.wire.bodies.body_json import read_body, write_body

_REPLICAS_MAX = 256


class Replica(NamedTuple):
    """One member of a group, as the controller knows it."""

    broker_id: int
    address: str
    is_alive: bool
    is_in_sync: bool


class ReplicasInfo(NamedTuple):
    """A group: its master, the epochs of master and in-sync set, and all members. `master_id` None: no master."""

    master_id: int | None
    master_address: str
    master_epoch: int
    set_epoch: int
    replicas: tuple[Replica, ...]


def encode_names(broker_names: list[str]) -> bytes:
    """Return the body of CONTROLLER_GET_SYNC_STATE_DATA (1006)."""
    return write_body(list(broker_names))


def encode_sync_state_set(members: frozenset[int], set_epoch: int) -> bytes:
    """Return an in-sync set with its epoch."""
    return write_body({"syncStateSet": list[Json](sorted(members)), "syncStateSetEpoch": set_epoch})


def decode_replicas_info(body: bytes, broker_name: str) -> ReplicasInfo | None:
    """Return one group of a `BrokerReplicasInfo`, None if the controller does not know it; raise `FormatError`."""
    table = _object(read_body(body) if body else {}, "body").get("replicasInfoTable") or {}
    found = _object(table, "replicasInfoTable").get(broker_name)
    if found is None:
        return None
    fields = _object(found, broker_name)
    in_sync, others = (_list(fields.get(name), name) for name in ("inSyncReplicas", "notInSyncReplicas"))
    if len(in_sync) + len(others) > _REPLICAS_MAX:
        raise BadField(f"{len(in_sync) + len(others)} replicas, at most {_REPLICAS_MAX}", field="replicas info")
    master_id = fields.get("masterBrokerId")
    return ReplicasInfo(
        None if master_id is None else _number(master_id, LONG_MAX, "masterBrokerId"),
        _text(fields.get("masterAddress"), "masterAddress"),
        _number(fields.get("masterEpoch", 0), INT_MAX, "masterEpoch"),
        _number(fields.get("syncStateSetEpoch", 0), INT_MAX, "syncStateSetEpoch"),
        (*(_replica(replica, is_in_sync=True) for replica in in_sync), *(_replica(replica) for replica in others)),
    )


def decode_master_log_end(body: bytes) -> int:
    """Return the end of a master's log from its answer to GET_BROKER_HA_STATUS; raise `FormatError`."""
    fields = _object(read_body(body) if body else {}, "HA status")
    return _number(fields.get("masterCommitLogMaxOffset"), LONG_MAX, "masterCommitLogMaxOffset")


def _replica(value: Json, *, is_in_sync: bool = False) -> Replica:
    fields = _object(value, "replica")
    broker_id = _number(fields.get("brokerId"), LONG_MAX, "brokerId")
    address = _text(fields.get("brokerAddress"), "brokerAddress")
    return Replica(broker_id, address, fields.get("alive") is True, is_in_sync)


def _object(value: Json, field: str) -> dict[str | int, Json]:
    if not isinstance(value, dict):
        raise BadField(f"{str(value)[:40]} is not an object", field=field)
    return value


def _list(value: Json, field: str) -> list[Json]:
    if not isinstance(value, list | None):
        raise BadField(f"{str(value)[:40]} is not a list", field=field)
    return value or []


def _text(value: Json, field: str) -> str:
    if not isinstance(value, str | None):
        raise BadField(f"{str(value)[:40]} is not a text", field=field)
    return value or ""


def _number(value: Json, largest: int, field: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise BadField(f"{str(value)[:40]} is not a number up to {largest}", field=field)
    return value
