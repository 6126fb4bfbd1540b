"""Users and policies of 2.0: changes with the codes and remarks of Java's broker, and their file."""

import json
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitlog.access.access_file import (
    BadAccessFile,
    decode_access_file,
    encode_access_file,
    load_access_file,
    save_access_file,
)
from orbitlog.access.user_table import UserTable
from orbitlog.errors import RequestRefused

ENTRY = {"actions": ["Pub"], "decision": "Allow", "resource": "Topic:T"}


def acl(*entries, policy_type="Custom"):
    return {"policies": [{"entries": list(entries), "policyType": policy_type}]}


@pytest.fixture
def table():
    users = UserTable()
    users.create_user("ann", {"password": "p1", "userType": "super"})
    users.create_user("bob", {"password": "p2"})
    return users


def refused(call, *arguments):
    with pytest.raises(RequestRefused) as error:
        call(*arguments)
    return error.value.code, error.value.remark


def test_user_is_created_with_defaults_and_listed(table):
    assert [user.to_file() for user in table.find_users(None)] == [
        {"password": "p1", "userStatus": "enable", "userType": "Super", "username": "ann"},
        {"password": "p2", "userStatus": "enable", "userType": "Normal", "username": "bob"},
    ]
    assert table.find_users("bo")[0].to_json()["password"] == ""
    assert table.account("ann").is_super


def test_refusals_of_users_have_the_codes_of_java(table):
    assert refused(table.create_user, "ann", {"password": "x"}) == (16, "The user is existed")
    assert refused(table.create_user, "eve", {"password": " "}) == (16, "password can not be blank")
    assert refused(table.create_user, " ", {"password": "x"}) == (29, "The username is blank")
    assert refused(table.update_user, "eve", {}) == (16, "The user is not exist")
    assert refused(table.update_user, "bob", {"userType": "King"})[0] == 16
    assert refused(table.create_user, "a:b", {"password": "x"})[0] == 29


def test_update_changes_only_what_is_given(table):
    table.update_user("bob", {"userStatus": "disable"})
    table.update_user("bob", {"userType": "Super"})

    user = table.users["bob"]
    assert (user.password, user.user_type, user.status) == ("p2", "Super", "disable")
    assert not table.account("bob").is_enabled


def test_deleting_a_user_deletes_its_policies(table):
    table.put_acl("User:bob", acl(ENTRY))
    table.delete_user("bob")
    table.delete_user("bob")

    assert table.acls == {}
    assert table.account("bob") is None


def test_entries_are_merged_by_resource(table):
    table.put_acl("User:bob", acl(ENTRY, {**ENTRY, "resource": "Topic:U"}))
    table.put_acl("user:bob", acl({**ENTRY, "decision": "Deny", "actions": ["all"]}))

    shown = table.find_acl("User:bob").to_json()
    assert shown["policies"][0]["entries"] == [
        {"actions": ["All"], "decision": "Deny", "resource": "Topic:T"},
        {"actions": ["Pub"], "decision": "Allow", "resource": "Topic:U"},
    ]


@pytest.mark.parametrize(
    ("subject", "fields", "remark"),
    [
        ("User:eve", acl(ENTRY), "The subject of User:eve is not exist."),
        ("User:bob", {}, "The policies is empty."),
        ("User:bob", acl(), "The policy entries is empty."),
        ("User:bob", acl({**ENTRY, "resource": ""}), "The resource is null."),
        ("User:bob", acl({**ENTRY, "actions": []}), "The actions is empty."),
        ("User:bob", acl({**ENTRY, "actions": ["Any"]}), "The actions can not be Any."),
        ("User:bob", acl({**ENTRY, "sourceIps": ["x"]}), "The source ip is invalid."),
        ("User:bob", acl({**ENTRY, "decision": "Perhaps"}), "The decision is null or illegal."),
    ],
)
def test_invalid_policies_are_refused_as_java_does(table, subject, fields, remark):
    assert refused(table.put_acl, subject, fields) == (16, remark)
    assert table.acls == {}


def test_unknown_action_is_refused(table):
    assert refused(table.put_acl, "User:bob", acl({**ENTRY, "actions": ["Pub", "Publish"]}))[0] == 16


def test_acl_is_deleted_by_resource_or_whole(table):
    assert refused(table.delete_acl, "User:bob", None, None) == (16, "The acl is not exist.")
    assert refused(table.delete_acl, "User:eve", None, None) == (16, "The subject is not exist.")
    table.put_acl("User:bob", acl(ENTRY, {**ENTRY, "resource": "Topic:U"}))
    table.delete_acl("User:bob", None, "topic:T")  # the type is read without regard to case, as in Java
    assert [str(entry.resource) for entry in table.find_acl("User:bob").custom] == ["Topic:U"]
    table.delete_acl("User:bob", "Custom", "Topic:U")
    assert table.find_acl("User:bob") is None


def test_list_leaves_out_entries_of_other_resources(table):
    table.put_acl("User:bob", acl(ENTRY, {**ENTRY, "resource": "Group:g"}))

    assert [str(entry.resource) for entry in table.find_acls("bob", "Group")[0].custom] == ["Group:g"]
    assert table.find_acls("ann", None) == []


def test_file_is_private_and_keeps_everything(tmp_path, table):
    table.put_acl("User:bob", acl({**ENTRY, "sourceIps": ["10.0.0.0/8"]}, policy_type="Default"))
    path = tmp_path / "config" / "access.json"
    save_access_file(path, table)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = load_access_file(path)
    assert loaded.users == table.users
    assert loaded.acls == table.acls


def test_missing_file_has_no_users(tmp_path):
    assert load_access_file(tmp_path / "access.json").users == {}


def test_file_that_others_can_read_is_refused(tmp_path, table):
    path = tmp_path / "access.json"
    save_access_file(path, table)
    path.chmod(0o640)

    with pytest.raises(BadAccessFile, match="chmod 600"):
        load_access_file(path)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"users": [], "acls": {}},
        {"users": [{}], "acls": []},
        {"users": [1], "acls": []},
        {"users": [{"username": "a", "password": "p"}] * 2, "acls": []},
        {"users": [], "acls": [{"subject": "User:a", "policies": acl(ENTRY)["policies"]}]},
        {"users": [{"username": "a", "password": "p"}], "acls": [{"subject": "User:a", "policies": []}]},
    ],
)
def test_invalid_file_is_refused_with_its_name(content):
    with pytest.raises(BadAccessFile, match=r"^access\.json is not a valid access file"):
        decode_access_file(json.dumps(content).encode(), "access.json")


@given(st.binary(max_size=200) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps))
def test_fuzzed_file_is_decoded_or_refused(data):
    data = data.encode(errors="replace") if isinstance(data, str) else data
    try:
        decode_access_file(data, "f")
    except BadAccessFile:
        pass


@given(st.data())
def test_fuzzed_change_of_a_valid_file_is_decoded_or_refused(data):
    table = UserTable()
    table.create_user("bob", {"password": "p"})
    table.put_acl("User:bob", acl(ENTRY))
    raw = bytearray(encode_access_file(table))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] = data.draw(st.integers(0, 255))
    try:
        decode_access_file(bytes(raw), "f")
    except BadAccessFile as error:
        assert "f " in str(error)
