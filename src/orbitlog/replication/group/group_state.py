"""Group state: the record of a replica group at its coordinator, and the view of it that a member acts on.

The state changes only by a compare-and-put on its revision. Its token names the change that wrote it: a member that
lost the answer to its proposal recognises its own change by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from orbitlog.errors import BadField, LimitExceeded
from orbitlog.formats.java import INT_MAX, LONG_MAX

STATE_BYTES_MAX = 64 * 1024
MEMBERS_MAX = 64
_TOKEN_CHARACTERS_MAX = 128


@dataclass(frozen=True, slots=True)
class GroupState:
    """One decision about a group: its master, epoch and in-sync set.

    `master` is None after a master resigned. `members` counts for each member the restarts at which it may have lost
    bytes; a report from before such a restart no longer counts.
    """

    epoch: int
    master: int | None
    in_sync: frozenset[int]
    start: int
    members: Mapping[int, int] = field(default_factory=dict)
    token: str = ""

    def with_in_sync(self, in_sync: frozenset[int], token: str) -> GroupState:
        """Return the state with another in-sync set, whose members are members of the group."""
        members = {**dict.fromkeys(in_sync, 0), **self.members}
        return replace(self, in_sync=in_sync, members=members, token=token)

    def without(self, member_id: int, token: str) -> GroupState:
        """Return the state after a member that may have lost bytes, or whose disk failed, has left the in-sync set."""
        members = {**self.members, member_id: self.members.get(member_id, 0) + 1}
        master = None if self.master == member_id else self.master
        return replace(self, master=master, in_sync=self.in_sync - {member_id}, members=members, token=token)


class LiveMember(NamedTuple):
    """A member whose lease is alive. `session` differs for each registration; addresses are for its peers."""

    session: int
    ha_address: str = ""
    address: str = ""
    epoch: int = 0
    written_to: int = 0


class Snapshot(NamedTuple):
    """State and live members as read at one revision of the state; revision 0: there is no state yet."""

    revision: int
    state: GroupState | None
    live: Mapping[int, LiveMember]


class Proposal(NamedTuple):
    """A compare-and-put of the state.

    It succeeds if the state's revision is `base_revision`, the proposer's session is still registered, and
    `absent_member`, if there is one, has no live lease. The session excludes a request of an earlier run of the
    process that arrives late.
    """

    base_revision: int
    state: GroupState
    session: int
    absent_member: int | None = None


def encode_group_state(state: GroupState) -> bytes:
    """Return the state as JSON."""
    return orjson.dumps(
        {
            "epoch": state.epoch,
            "master": state.master,
            "in_sync": sorted(state.in_sync),
            "start": state.start,
            "members": {str(member): count for member, count in sorted(state.members.items())},
            "token": state.token,
        }
    )


def decode_group_state(data: bytes) -> GroupState:
    """Return the state; raise `FormatError` if a field is missing, unknown in kind, or out of range."""
    fields = _json_object(data, "group state")
    in_sync = fields.get("in_sync")
    members = fields.get("members")
    token = fields.get("token")
    if not isinstance(in_sync, list) or not isinstance(members, dict) or not isinstance(token, str):
        raise BadField("in_sync, members or token is missing or of another type", field="group state")
    if len(in_sync) > MEMBERS_MAX or len(members) > MEMBERS_MAX or len(token) > _TOKEN_CHARACTERS_MAX:
        raise LimitExceeded(field="group state members", limit=MEMBERS_MAX, got=max(len(in_sync), len(members)))
    master = fields.get("master")
    return GroupState(
        epoch=_number(fields.get("epoch"), INT_MAX, "epoch"),
        master=None if master is None else _number(master, LONG_MAX, "master"),
        in_sync=frozenset(_number(member, LONG_MAX, "in_sync") for member in in_sync),
        start=_number(fields.get("start"), LONG_MAX, "start"),
        members={_member_id(member): _number(count, INT_MAX, "members") for member, count in members.items()},
        token=token,
    )


def encode_live_member(live: LiveMember) -> bytes:
    """Return what a member publishes with its lease; the session is the key's, not in the value."""
    return orjson.dumps(
        {
            "address": live.address,
            "ha_address": live.ha_address,
            "epoch": live.epoch,
            "written_to": live.written_to,
        }
    )


def decode_live_member(data: bytes, session: int) -> LiveMember:
    """Return a live member from its value; raise `FormatError` if it is invalid."""
    fields = _json_object(data, "live member")
    address, ha_address = fields.get("address"), fields.get("ha_address")
    if not isinstance(address, str) or not isinstance(ha_address, str):
        raise BadField("address or ha_address is not a text", field="live member")
    epoch = _number(fields.get("epoch"), INT_MAX, "epoch")
    return LiveMember(session, ha_address, address, epoch, _number(fields.get("written_to"), LONG_MAX, "written_to"))


def _json_object(data: bytes, field_name: str) -> dict[str, Any]:
    if len(data) > STATE_BYTES_MAX:
        raise LimitExceeded(field=field_name, limit=STATE_BYTES_MAX, got=len(data))
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadField(f"not JSON: {error}", field=field_name) from None
    if not isinstance(fields, dict):
        raise BadField("not a JSON object", field=field_name)
    return fields


def _member_id(text: str) -> int:
    return _number(int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else None, LONG_MAX, "members")


def _number(value: object, largest: int, field_name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
        raise BadField(f"{value!r} is not a number up to {largest}", field=field_name)
    return value
