"""Request guard: refusals of both generations, white addresses, kept verdicts, constant work for unknown names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.access import request_guard
from orbitlog.access.access_model import Account, Action, PolicyEntry, Resource
from orbitlog.access.request_guard import AccessPolicy, RequestGuard
from orbitlog.access.request_needs import RequestParts, needs_of
from orbitlog.access.request_signature import signature_of
from orbitlog.access.source_addresses import white_address
from orbitlog.errors import RequestRefused


def entry(resource, actions=Action.ALL, allowed=True):
    return PolicyEntry(Resource.parse(resource), actions, allowed)


ACCOUNTS = {
    "super": Account("super", "secret-1", is_super=True, manages_accounts=True),
    "bob": Account("bob", "secret-2", custom=(entry("Topic:T", Action.PUB), entry("Group:g", Action.SUB))),
    "off": Account("off", "secret-3", is_super=True, is_enabled=False),
}


def signed(name="bob", secret="secret-2", body=b"", **fields):
    fields = {**fields, "AccessKey": name}
    return {**fields, "Signature": signature_of(secret, fields, body)}


def refusal(guard, code, fields, body=b"", ip="10.0.0.1"):
    with pytest.raises(RequestRefused) as refused:
        guard.admit(code, fields, body, ip)
    assert not guard.is_admitted(code, fields, body, ip)
    return refused.value.code, refused.value.remark


@pytest.fixture
def guard():
    return RequestGuard(AccessPolicy(ACCOUNTS), cluster="C")


def test_request_within_the_policy_is_admitted_with_its_account(guard):
    assert guard.admit(310, signed(b="T"), b"", "10.0.0.1") == "bob"
    assert guard.admit(25, signed("super", "secret-1"), b"", "10.0.0.1") == "super"


def test_refusals_have_the_code_and_sentences_of_2_0(guard):
    assert refusal(guard, 310, {"b": "T"}) == (16, "username cannot be null.")
    assert refusal(guard, 310, signed("eve", b="T")) == (16, "User:eve is not found.")
    assert refusal(guard, 310, signed("off", "secret-3", b="T")) == (16, "User:off is disabled.")
    assert refusal(guard, 310, signed(secret="wrong", b="T")) == (16, "check signature failed.")
    remark = "User:bob has no permission to access Topic:U from 10.0.0.1, no matched policies."
    assert refusal(guard, 310, signed(b="U")) == (16, remark)


def test_refusals_have_the_code_and_sentences_of_1_0():
    guard = RequestGuard(AccessPolicy(ACCOUNTS, is_plain=True), cluster="C")
    start = "org.apache.rocketmq.acl.common.AclException: "

    assert refusal(guard, 310, {"b": "T"}) == (1, start + "No accessKey is configured")
    assert refusal(guard, 310, signed("eve", b="T")) == (1, start + "No acl config for eve")
    assert refusal(guard, 310, signed(secret="x", b="T")) == (1, start + "Check signature failed for accessKey=bob")
    assert refusal(guard, 310, signed(b="U")) == (1, start + "No default permission for topic:U")
    pull = signed(topic="T", consumerGroup="h")
    assert refusal(guard, 11, pull) == (1, start + "No default permission for group:h")
    admin = "Need admin permission for request code=25, but accessKey=bob is not"
    assert refusal(guard, 25, signed()) == (1, start + admin)


def test_signature_is_verified_for_every_request_also_after_a_kept_verdict(guard):
    guard.admit(310, signed(b="T"), b"", "10.0.0.1")

    assert refusal(guard, 310, {**signed(b="T"), "Signature": "x"})[1] == "check signature failed."
    assert refusal(guard, 310, signed(b="T"), b"another body")[1] == "check signature failed."


def test_verdict_on_one_topic_or_account_is_not_used_for_another(guard):
    guard.admit(310, signed(b="T"), b"", "10.0.0.1")
    guard.admit(310, signed("super", "secret-1", b="U"), b"", "10.0.0.1")

    assert refusal(guard, 310, signed(b="U"))[0] == 16
    assert refusal(guard, 11, signed(b="T", topic="T", consumerGroup="g"))[0] == 16


def test_changed_policy_drops_kept_verdicts(guard):
    guard.admit(310, signed(b="T"), b"", "10.0.0.1")
    guard.policy = AccessPolicy({"bob": Account("bob", "secret-2")})

    assert refusal(guard, 310, signed(b="T"))[0] == 16


def test_number_of_kept_verdicts_is_limited(guard, monkeypatch):
    monkeypatch.setattr(request_guard, "_VERDICTS_MAX", 4)
    for number in range(20):
        guard.is_admitted(310, signed(b=f"T{number}"), b"", "10.0.0.1")

    assert len(guard._verdicts) <= 4


def test_without_authorization_only_accounts_are_protected():
    guard = RequestGuard(AccessPolicy(ACCOUNTS, is_authorizing=False), cluster="C")

    assert guard.admit(25, signed(), b"", "10.0.0.1") == "bob"
    assert refusal(guard, 3004, signed(username="super"))[0] == 16
    assert refusal(guard, 25, {})[1] == "username cannot be null."


def test_global_white_address_needs_no_credentials_except_to_change_the_cluster():
    guard = RequestGuard(AccessPolicy(ACCOUNTS, (white_address("10.0.0.*"),), is_plain=True), cluster="C")

    assert guard.admit(310, {"b": "any"}, b"", "10.0.0.1") == ""
    assert refusal(guard, 25, {})[0] == 1
    assert refusal(guard, 54, {})[0] == 1
    assert refusal(guard, 310, {"b": "any"}, ip="10.0.1.1")[0] == 1


def test_white_address_of_an_account_needs_its_name_only():
    account = Account("plain-1", "secret-4", white_address="10.0.0.1", is_plain=True)
    guard = RequestGuard(AccessPolicy({"plain-1": account}, is_plain=True), cluster="C")

    assert guard.admit(310, {"b": "any", "AccessKey": "plain-1"}, b"", "10.0.0.1") == "plain-1"
    assert refusal(guard, 310, {"b": "any", "AccessKey": "plain-1"}, ip="10.0.0.2")[0] == 1
    assert refusal(guard, 25, {"AccessKey": "plain-1"})[0] == 1


def test_unknown_name_takes_the_work_of_a_signature(guard, monkeypatch):
    verified = []
    original = request_guard.is_signed_by
    monkeypatch.setattr(request_guard, "is_signed_by", lambda *arguments: verified.append(1) or original(*arguments))

    refusal(guard, 310, signed("eve", b="T"))

    assert len(verified) == 2  # one for `admit`, one for `is_admitted`


def test_refusals_and_administrative_requests_are_reported_without_secrets(guard):
    events = []
    guard.on_event = events.append

    refusal(guard, 310, signed(b="U"))
    guard.admit(310, signed(b="T"), b"", "10.0.0.1")
    guard.admit(215, signed("super", "secret-1", topic="T"), b"", "10.0.0.2")

    assert [event[:5] for event in events] == [
        (False, "bob", "10.0.0.1", 310, ("Topic:U",)),
        (True, "super", "10.0.0.2", 215, ("Topic:T",)),
    ]
    assert "secret" not in repr(events)
    assert guard.refused_count == 1


def needs(code, **fields):
    return needs_of(RequestParts(code, fields, b""), "C", lambda _: None)


def test_explanation_names_the_deciding_entry(guard):
    (decision,) = guard.explain("bob", needs(310, b="T"), "10.0.0.1")

    assert decision.is_allowed
    assert decision.reason == "custom policy: Allow Pub on Topic:T"
    assert not guard.explain("eve", needs(310, b="T"), "10.0.0.1")[0].is_allowed
    assert [one.is_allowed for one in guard.explain("bob", needs(11, topic="T", consumerGroup="g"), "")] == [
        True,
        False,
    ]


@pytest.mark.parametrize("ip", ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
@pytest.mark.parametrize("name", ["bob", "white", "eve", ""])
@pytest.mark.parametrize("request_needs", [(310, {"b": "T"}), (310, {"b": "U"}), (25, {})])
def test_explanation_is_the_verdict_on_a_request_with_a_valid_signature(ip, name, request_needs):
    accounts = {**ACCOUNTS, "white": Account("white", "secret-4", white_address="10.0.0.2", is_plain=True)}
    guard = RequestGuard(AccessPolicy(accounts, (white_address("10.0.0.1"),)), cluster="C")
    code, fields = request_needs
    secret = accounts[name].secret if name in accounts else "secret"
    is_admitted = guard.is_admitted(code, signed(name, secret, **fields), b"", ip)

    decisions = guard.explain(name, needs(code, **fields), ip)

    assert all(decision.is_allowed for decision in decisions) == is_admitted
    assert ("white address" in decisions[0].reason) == (
        code == 310 and (ip == "10.0.0.1" or (name, ip) == ("white", "10.0.0.2"))
    )


@given(
    st.integers(-(2**31), 2**31 - 1) | st.sampled_from([10, 11, 34, 37, 310, 320, 3001]),
    st.dictionaries(st.text(max_size=10) | st.sampled_from(["AccessKey", "Signature", "b"]), st.text(max_size=20)),
    st.binary(max_size=50),
)
def test_fuzzed_credentials_are_never_admitted(code, fields, body):
    guard = RequestGuard(AccessPolicy(ACCOUNTS), cluster="C")

    with pytest.raises(RequestRefused):
        guard.admit(code, fields, body, "10.0.0.1")
