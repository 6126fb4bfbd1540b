"""`orbitlog access`: users and policies in a file, explained decisions, import of accounts of 4.x."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from orbitlog.access.access_file import load_access_file
from orbitlog.access.access_settings import QuotaLimits

ACCOUNTS = """
globalWhiteRemoteAddresses: [10.0.0.1]
accounts:
- {accessKey: operator, secretKey: secret-1, admin: true}
- accessKey: account-1
  secretKey: secret-2
  defaultTopicPerm: SUB
  topicPerms: [Orders=PUB]
  groupPerms: [billing=SUB]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "access.json"


@pytest.fixture
def bob(run: Any, file: Path) -> Path:
    assert run("access", "user", "add", "bob", "--password-stdin", "--file", file, input="hidden-1\n").exit_code == 0
    return file


def test_user_is_added_changed_and_removed_without_showing_passwords(run: Any, bob: Path) -> None:
    assert stat.S_IMODE(bob.stat().st_mode) == 0o600
    assert load_access_file(bob).users["bob"].password == "hidden-1"
    assert run("access", "user", "passwd", "bob", "--password-stdin", "--file", bob, input="hidden-2\n").exit_code == 0
    assert load_access_file(bob).users["bob"].password == "hidden-2"
    assert run("access", "user", "disable", "bob", "--file", bob).exit_code == 0
    listed = run("access", "user", "list", "--file", bob, "--json")
    assert listed.rows == [{"username": "bob", "userType": "Normal", "userStatus": "disable", "policies": 0}]
    assert "hidden" not in listed.stdout
    assert run("access", "user", "enable", "bob", "--file", bob).exit_code == 0
    assert run("access", "user", "remove", "bob", "--file", bob).exit_code == 0
    assert load_access_file(bob).users == {}


def test_quotas_of_a_user_are_set_one_by_one_and_shown(run: Any, bob: Path) -> None:
    shown = {"username": "bob", "messagesPerSecond": None, "bytesPerSecond": None, "connections": None, "topics": None}
    assert run("access", "user", "quota", "bob", "--file", bob, "--json").rows == [shown]
    assert run("access", "user", "quota", "bob", "--messages", "100", "--file", bob).exit_code == 0
    changed = run("access", "user", "quota", "bob", "--topics", "0", "--file", bob, "--json")
    assert changed.rows == [{**shown, "messagesPerSecond": 100, "topics": 0}]
    assert load_access_file(bob).users["bob"].limits == QuotaLimits(100, None, None, 0)
    assert run("access", "user", "quota", "eve", "--topics", "1", "--file", bob).exit_code != 0
    assert run("access", "user", "quota", "bob", "--topics", "-1", "--file", bob).exit_code != 0


def test_mistakes_end_in_one_sentence_and_change_nothing(run: Any, bob: Path, tmp_path: Path) -> None:
    before = bob.read_bytes()
    wrong = [
        run("access", "user", "add", "bob", "--password-stdin", "--file", bob, input="x\n"),
        run("access", "user", "add", "eve", "--file", bob),
        run("access", "user", "add", "eve", "--password-stdin", "--file", bob, input="\n"),
        run("access", "user", "remove", "eve", "--file", bob),
        run("access", "user", "list"),
        run("access", "user", "list", "--file", bob, "--store", tmp_path),
        run("access", "policy", "allow", "eve", "Topic:T", "Pub", "--file", bob),
        run("access", "policy", "allow", "bob", "Topic", "Pub", "--file", bob),
        run("access", "policy", "allow", "bob", "Topic:T", "Publish", "--file", bob),
        run("access", "policy", "allow", "bob", "Topic:T", "Pub", "--from", "here", "--file", bob),
        run("access", "policy", "remove", "bob", "--file", bob),
        run("access", "check", "bob", "Orders", "Pub", "--file", bob),
    ]
    for ran in wrong:
        assert ran.exit_code in (1, 2), ran.stdout
        assert len(ran.sentences) == 1
    assert bob.read_bytes() == before


def test_decision_is_explained_by_the_deciding_entry(run: Any, bob: Path) -> None:
    assert run("access", "policy", "allow", "bob", "Topic:Ord*", "Pub,Sub", "--file", bob).exit_code == 0
    assert (
        run("access", "policy", "deny", "bob", "Topic:Orders", "Sub", "--from", "10.0.0.0/8", "--file", bob).exit_code
        == 0
    )
    allowed = run("access", "check", "bob", "Topic:Orders", "Sub", "--file", bob)
    assert (allowed.exit_code, allowed.stdout) == (0, "allowed: custom policy: Allow Pub, Sub on Topic:Ord*\n")
    refused = run("access", "check", "bob", "Topic:Orders", "Sub", "--from", "10.1.1.1", "--file", bob)
    assert refused.exit_code == 1
    assert refused.stdout.endswith("Topic:Orders from 10.1.1.1, the decision is deny.\n")
    assert run("access", "check", "bob", "Topic:%RETRY%g", "Sub", "--file", bob).exit_code == 1
    assert run("access", "check", "eve", "Topic:T", "Pub", "--file", bob).stdout == "refused: User:eve is not found.\n"
    listed = run("access", "policy", "list", "--file", bob, "--json").rows
    assert [(row["resource"], row["decision"]) for row in listed] == [("Topic:Ord*", "Allow"), ("Topic:Orders", "Deny")]
    assert run("access", "policy", "remove", "bob", "Topic:Orders", "--file", bob).exit_code == 0
    assert run("access", "policy", "remove", "bob", "--file", bob).exit_code == 0
    assert run("access", "policy", "list", "bob", "--file", bob, "--json").rows == []


def test_request_is_explained_by_each_of_its_needs(run: Any, bob: Path) -> None:
    assert run("access", "policy", "allow", "bob", "Topic:Orders", "Sub", "--file", bob).exit_code == 0
    pull = ("access", "check", "bob", "--request", "PULL_MESSAGE", "--field", "topic=Orders")
    refused = run(*pull, "--field", "consumerGroup=billing", "--file", bob)
    assert (refused.exit_code, refused.stdout.splitlines()) == (
        1,
        [
            "refused: User:bob has no permission to access Group:billing from 127.0.0.1, no matched policies.",
            "allowed: custom policy: Allow Sub on Topic:Orders",
        ],
    )
    assert run("access", "policy", "allow", "bob", "Group:billing", "Sub", "--file", bob).exit_code == 0
    allowed = run(*pull, "--field", "consumerGroup=billing", "--file", bob, "--json")
    assert allowed.exit_code == 0
    assert [(row["resource"], row["actions"]) for row in allowed.rows] == [
        ("Group:billing", "Sub"),
        ("Topic:Orders", "Sub"),
    ]
    closed = run("access", "check", "bob", "--request", "99999", "--cluster", "East", "--file", bob)
    assert closed.exit_code == 1 and "Cluster:East" in closed.stdout
    account = run("access", "check", "bob", "--request", "3001", "--file", bob)
    assert account.exit_code == 1 and "super users only" in account.stdout
    for words in (
        ("--request", "PULL"),
        ("--request", "310"),
        ("--request", "310", "--field", "b"),
        ("--request", "34"),
        ("--request", "36", "--field", "group=g"),
        ("Topic:Orders", "Pub", "--request", "310"),
        ("Topic:Orders", "Pub", "--field", "b=Orders"),
        ("Topic:Orders", "Pub", "--from", "10.0.0.0/8"),
        ("Topic:Orders", "Pub", "--from", "here"),
        (),
    ):
        ran = run("access", "check", "bob", *words, "--file", bob)
        assert ran.exit_code == 2 and len(ran.sentences) == 1, words


def test_white_addresses_are_part_of_the_explanation(run: Any, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    white = ACCOUNTS.replace("  secretKey: secret-2\n", "  secretKey: secret-2\n  whiteRemoteAddress: 10.0.2.*\n")
    (tmp_path / "conf" / "plain_acl.yml").write_text(white)
    words = ("access", "check", "account-1", "Topic:Other", "Pub", "--home", tmp_path)
    assert run(*words).exit_code == 1
    everywhere = run(*words, "--from", "10.0.0.1")
    assert (everywhere.exit_code, everywhere.stdout) == (
        0,
        "allowed: 10.0.0.1 is a global white address: it needs no credentials\n",
    )
    own = run(*words, "--from", "10.0.2.7", "--json")
    assert own.exit_code == 0
    assert own.rows[0]["reason"] == "10.0.2.7 is a white address of account account-1: it needs no signature"
    update = ("access", "check", "account-1", "--request", "25", "--home", tmp_path, "--from", "10.0.0.1")
    assert run(*update).exit_code == 1


def test_accounts_are_imported_with_notes_on_what_changes(run: Any, file: Path, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    tried = run("access", "import", tmp_path, "--file", file, "--dry-run", "--json")
    assert not file.exists()
    ran = run("access", "import", tmp_path, "--file", file, "--json")
    assert ran.rows == tried.rows
    assert [(row["username"], row["userType"], row["result"]) for row in ran.rows] == [
        ("operator", "Super", "imported"),
        ("account-1", "Normal", "imported"),
    ]
    assert "white addresses" in ran.rows[0]["note"]
    assert "default permission also applies to Topic:Orders" in ran.rows[1]["note"]
    assert "secret" not in ran.stdout
    for words, code in ((("Topic:Orders", "Pub"), 0), (("Topic:Other", "Sub"), 0), (("Topic:Other", "Pub"), 1)):
        assert run("access", "check", "account-1", *words, "--file", file).exit_code == code
    assert run("access", "check", "account-1", "Topic:Orders", "Sub", "--home", tmp_path).exit_code == 1
    assert [row["result"] for row in run("access", "import", tmp_path, "--file", file, "--json").rows] == ["exists"] * 2


def test_account_that_a_user_file_cannot_hold_is_not_imported(run: Any, file: Path, tmp_path: Path) -> None:
    plain = tmp_path / "conf" / "plain_acl.yml"
    plain.parent.mkdir()
    plain.write_text(ACCOUNTS.replace("account-1", '"team:account"'))
    ran = run("access", "import", tmp_path, "--file", file)
    assert ran.exit_code == 1 and "account team:account cannot be a user" in ran.sentences[0]
    assert not file.exists()


def test_star_of_a_plain_permission_is_not_imported_as_every_name(run: Any, file: Path, tmp_path: Path) -> None:
    plain = tmp_path / "conf" / "plain_acl.yml"
    plain.parent.mkdir()
    plain.write_text(ACCOUNTS.replace("Orders=PUB", "'*=PUB|SUB', 'Ord*=PUB', Mine=PUB"))
    words = ("access", "check", "account-1", "Topic:Orders", "Pub")
    assert run(*words, "--home", tmp_path).exit_code == 1
    (_, imported) = run("access", "import", tmp_path, "--file", file, "--json").rows
    assert "the permission for * is not imported" in imported["note"]
    assert run(*words, "--file", file).exit_code == 1
    assert run("access", "check", "account-1", "Topic:Mine", "Pub", "--file", file).exit_code == 0


def test_administrator_with_permissions_is_imported_with_a_note(run: Any, file: Path, tmp_path: Path) -> None:
    plain = tmp_path / "conf" / "plain_acl.yml"
    plain.parent.mkdir()
    plain.write_text(ACCOUNTS.replace("  secretKey: secret-2\n", "  secretKey: secret-2\n  admin: true\n"))
    (_, imported) = run("access", "import", tmp_path, "--file", file, "--json").rows
    assert "no longer manages accounts" in imported["note"]


def test_policy_entry_is_removed_by_any_spelling_of_its_resource_or_not_at_all(run: Any, bob: Path) -> None:
    assert run("access", "policy", "deny", "bob", "topic:Orders", "Pub", "--file", bob).exit_code == 0
    absent = run("access", "policy", "remove", "bob", "Topic:Other", "--file", bob)
    assert absent.exit_code == 1 and "no policy entry of Topic:Other" in absent.sentences[0]
    assert len(run("access", "policy", "list", "bob", "--file", bob, "--json").rows) == 1
    assert run("access", "policy", "remove", "bob", "TOPIC:Orders", "--file", bob).exit_code == 0
    assert run("access", "policy", "list", "bob", "--file", bob, "--json").rows == []


def test_imported_default_entry_is_removed_by_its_resource(run: Any, file: Path, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    assert run("access", "import", tmp_path, "--file", file).exit_code == 0
    assert run("access", "policy", "remove", "account-1", "Topic:*", "--file", file).exit_code == 0
    assert run("access", "check", "account-1", "Topic:Other", "Sub", "--file", file).exit_code == 1


def test_links_of_a_store_are_not_followed_to_its_users(run: Any, tmp_path: Path) -> None:
    outside, store = tmp_path / "outside", tmp_path / "store"
    outside.mkdir()
    store.mkdir()
    words = ("access", "user", "add", "bob", "--password-stdin", "--store", store)
    (store / "config").symlink_to(outside)
    assert "is a link" in run(*words, input="hidden-1\n").sentences[0]
    (store / "config").unlink()
    (store / "config").mkdir()
    (store / "config" / "access.json").symlink_to(outside / "access.json")
    assert "is a link" in run(*words, input="hidden-1\n").sentences[0]
    assert list(outside.iterdir()) == []


def test_pipe_in_the_place_of_the_users_is_refused_and_not_waited_for(run: Any, file: Path) -> None:
    os.mkfifo(file, 0o600)
    ran = run("access", "user", "list", "--file", file)
    assert ran.exit_code == 1 and "not a regular file" in ran.sentences[0]


def test_account_whose_group_has_no_name_is_not_imported(run: Any, file: Path, tmp_path: Path) -> None:
    plain = tmp_path / "conf" / "plain_acl.yml"
    plain.parent.mkdir()
    plain.write_text(ACCOUNTS.replace("Orders=PUB", "'%RETRY%=SUB'"))
    ran = run("access", "import", tmp_path, "--file", file)
    assert ran.exit_code == 1 and "account account-1 cannot be a user" in ran.sentences[0]
