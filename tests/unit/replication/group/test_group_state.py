"""Group state as JSON, and the conditions of a proposal."""

from __future__ import annotations

import orjson
import pytest

from orbitlog.errors import FormatError
from orbitlog.replication.group.group_record import GroupRecord
from orbitlog.replication.group.group_state import (
    GroupState,
    LiveMember,
    Proposal,
    decode_group_state,
    decode_live_member,
    encode_group_state,
    encode_live_member,
)

STATE = GroupState(7, 2, frozenset((2, 3)), 930, {2: 0, 3: 1}, "2-5-1")
TEXT = b'{"epoch":7,"master":2,"in_sync":[2,3],"start":930,"members":{"2":0,"3":1},"token":"2-5-1"}'


def test_state_is_encoded_as_json_and_back() -> None:
    assert encode_group_state(STATE) == TEXT
    assert decode_group_state(TEXT) == STATE
    assert decode_group_state(TEXT.replace(b'"master":2', b'"master":null')).master is None


@pytest.mark.parametrize("name", ["epoch", "in_sync", "start", "members", "token"])
@pytest.mark.parametrize("value", [None, -1, "x", [-1], {"x": 1}, {"1": -1}, 2**70, True])
def test_state_with_an_invalid_field_raises(name: str, value: object) -> None:
    if name == "token" and value == "x":
        return
    with pytest.raises(FormatError):
        decode_group_state(TEXT.replace(TEXT, orjson.dumps(orjson.loads(TEXT) | {name: _fits(value)})))


def _fits(value: object) -> object:
    return 2.0**70 if value == 2**70 else value


def test_text_that_is_not_a_state_raises() -> None:
    for text in (b"", b"[]", b"{", b"7", b"x" * 100_000):
        with pytest.raises(FormatError):
            decode_group_state(text)


def test_live_member_is_encoded_as_json_and_back() -> None:
    member = LiveMember(9, "127.0.0.1:10912", "127.0.0.1:10911", 7, 930)
    assert decode_live_member(encode_live_member(member), 9) == member
    with pytest.raises(FormatError):
        decode_live_member(b'{"address":1}', 9)


def proposal(record: GroupRecord, session: int, absent: int | None = None) -> Proposal:
    return Proposal(record.revision, STATE, session, absent)


def test_proposal_of_an_earlier_session_has_no_effect() -> None:
    record = GroupRecord()
    earlier = record.register(2, LiveMember(0))
    late = proposal(record, earlier)
    record.register(2, LiveMember(0))
    assert record.propose(2, late).state is None


def test_proposal_on_an_earlier_revision_has_no_effect() -> None:
    record = GroupRecord()
    session = record.register(2, LiveMember(0))
    first = proposal(record, session)
    assert record.propose(2, first).state == STATE
    assert record.propose(2, first).revision == 1


def test_election_has_no_effect_while_the_master_has_its_lease() -> None:
    record = GroupRecord()
    session = record.register(2, LiveMember(0))
    record.register(3, LiveMember(0))
    assert record.propose(2, proposal(record, session, absent=3)).state is None
    record.expire(3)
    assert record.propose(2, proposal(record, session, absent=3)).state == STATE


def test_member_that_leaves_gives_up_its_office_and_counts_its_restart() -> None:
    left = STATE.without(2, "t")
    assert (left.master, left.in_sync, left.members) == (None, frozenset((3,)), {2: 1, 3: 1})
