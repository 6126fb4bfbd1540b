"""Verbs of `orbitlog mqadmin` that copy users and policies between brokers; others are in tests/interop."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orbitlog.access.access_file import load_access_file
from orbitlog.access.user_table import UserTable
from orbitlog.cli.main import cli
from orbitlog.testing.running_broker import RunningBroker
from tests.support.secured_broker import ROOT

USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
}
Run = Callable[[str], Result]


@pytest.fixture
def two_brokers(tmp_path: Path) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    with RunningBroker(tmp_path / "one", USERS) as one, RunningBroker(tmp_path / "two", USERS) as two:
        yield one, two


@pytest.fixture
def run(two_brokers: tuple[RunningBroker, RunningBroker], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a verb; `{1}` and `{2}` stand for the addresses of the brokers."""
    monkeypatch.setenv("ORBITLOG_ACCESS_KEY", ROOT.access_key)
    monkeypatch.setenv("ORBITLOG_SECRET_KEY", ROOT.secret_key)
    one, two = two_brokers

    def verb(line: str) -> Result:
        words = line.replace("{1}", one.broker_address).replace("{2}", two.broker_address).split()
        return CliRunner().invoke(cli, ["mqadmin", *words, "-n", one.address], prog_name="orbitlog")

    return verb


def table_of(broker: RunningBroker) -> UserTable:
    return load_access_file(broker.store / "config" / "access.json")


def test_policies_are_copied_and_merged(two_brokers: tuple[RunningBroker, RunningBroker], run: Run) -> None:
    one, two = two_brokers
    for broker in ("{1}", "{2}"):
        for user in ("bob", "eve"):
            assert run(f"createUser -b {broker} -u {user} -p secret-1").exit_code == 0
    assert run("createAcl -b {1} -s User:bob -r Topic:A,Topic:B -a Pub -d Allow -i 10.0.0.0/8").exit_code == 0
    assert run("createAcl -b {1} -s User:eve -r Group:g -a Sub -d Deny").exit_code == 0
    assert run("createAcl -b {2} -s User:bob -r Topic:A,Topic:C -a Sub -d Deny").exit_code == 0
    unknown = run("copyAcl -f {1} -t {2} -s User:bob,User:none-of-these")
    assert "The subject is not exist." in unknown.stderr and not unknown.stdout
    copied = run("copyAcl -f {1} -t {2} -s User:bob")
    assert copied.stdout == f"copy acl of User:bob from {one.broker_address} to {two.broker_address} success.\n"
    assert [str(entry) for entry in table_of(two).acls["User:bob"].custom] == [
        "Allow Pub on Topic:A from 10.0.0.0/8",
        "Deny Sub on Topic:C",
        "Allow Pub on Topic:B from 10.0.0.0/8",
    ]
    assert "User:eve" not in table_of(two).acls
    everything = run("copyAcl -f {1} -t {2}")
    assert [line.split()[3] for line in everything.stdout.splitlines()] == ["User:bob", "User:eve"]
    assert table_of(two).acls["User:eve"] == table_of(one).acls["User:eve"]


def test_users_of_an_orbitlog_broker_are_not_copied_without_their_passwords(
    two_brokers: tuple[RunningBroker, RunningBroker], run: Run
) -> None:
    assert run("createUser -b {1} -u bob -p secret-1").exit_code == 0
    copied = run("copyUser -f {1} -t {2} -u bob")
    assert "returns no passwords; create user bob with `orbitlog mqadmin createUser`" in copied.stderr
    assert run("copyUser -f {1} -t {2} -u nobody").exit_code == 0
    assert table_of(two_brokers[1]).users.keys() == {ROOT.access_key}
