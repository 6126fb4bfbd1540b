"""Which cluster is meant, and the file that names them."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from orbitlog.cli.contexts import Cluster, Contexts, choose_cluster, contexts_path, load_contexts
from orbitlog.cli.main import Problem, WrongUse

VARIABLES = ("ORBITLOG_CONTEXT", "ORBITLOG_NAME_SERVER", "NAMESRV_ADDR", "ORBITLOG_ACCESS_KEY", "ORBITLOG_SECRET_KEY")
VARIABLES += ("ORBITLOG_SECURITY_TOKEN", "ORBITLOG_TLS", "ORBITLOG_TLS_CA", "ORBITLOG_TLS_CERT", "ORBITLOG_TLS_KEY")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def shop(home: Path) -> Contexts:
    table = {"shop": Cluster("10.0.0.1:9876", "key", "secret", "space"), "test": Cluster("10.0.0.2:9876")}
    contexts = Contexts(contexts_path(), table, "shop")
    contexts.save()
    return contexts


def test_what_is_saved_is_loaded_and_is_its_owners_alone(shop: Contexts, home: Path) -> None:
    path = home / "orbitlog" / "contexts.json"
    assert load_contexts() == shop
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["contexts.json"]
    assert json.loads(path.read_text())["contexts"]["test"] == {"nameServers": "10.0.0.2:9876"}


@pytest.mark.parametrize(
    ("address", "context", "environment", "cluster"),
    [
        (None, None, {}, Cluster("10.0.0.1:9876", "key", "secret", "space")),
        (None, "test", {}, Cluster("10.0.0.2:9876")),
        (None, None, {"ORBITLOG_CONTEXT": "test"}, Cluster("10.0.0.2:9876")),
        (None, "shop", {"ORBITLOG_CONTEXT": "test"}, Cluster("10.0.0.1:9876", "key", "secret", "space")),
        # The credentials of the context in use are not for an address that was given otherwise.
        ("h:1", None, {}, Cluster("h:1")),
        (None, None, {"NAMESRV_ADDR": "h:2"}, Cluster("h:2")),
        (None, None, {"NAMESRV_ADDR": "h:2", "ORBITLOG_NAME_SERVER": "h:3"}, Cluster("h:3")),
        (None, "test", {"NAMESRV_ADDR": "h:2"}, Cluster("10.0.0.2:9876")),
        ("h:1", "shop", {}, Cluster("h:1", "key", "secret", "space")),
        ("h:1", None, {"ORBITLOG_ACCESS_KEY": "a", "ORBITLOG_SECRET_KEY": "s"}, Cluster("h:1", "a", "s")),
    ],
)
def test_the_first_that_is_given_counts(
    shop: Contexts,
    monkeypatch: pytest.MonkeyPatch,
    address: str | None,
    context: str | None,
    environment: dict[str, str],
    cluster: Cluster,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert choose_cluster(address, context) == cluster


def test_tls_of_a_context_of_the_environment_and_of_the_flag(run: Any, tmp_path: Path, monkeypatch: Any) -> None:
    authority, certificate = tmp_path / "ca.pem", tmp_path / "client.pem"
    authority.write_text("")
    certificate.write_text("")
    assert run("context", "add", "safe", "-n", "h:1", "--ca-file", authority).exit_code == 0
    assert load_contexts().table["safe"] == Cluster("h:1", tls="full", ca_file=str(authority))
    assert run("context", "list", "--json").rows[0]["tls"] == "full"
    assert run("context", "add", "open", "-n", "h:1", "--tls-check", "none").exit_code == 0
    assert choose_cluster(None, "open").tls == "none"
    alone = run("context", "add", "alone", "-n", "h:1", "--cert-file", certificate)
    assert alone.exit_code == 2 and "must be given together" in alone.sentences[0]
    assert choose_cluster("h:2", None, uses_tls=True) == Cluster("h:2", tls="full")
    monkeypatch.setenv("ORBITLOG_TLS_CA", "/ca.pem")
    assert choose_cluster("h:2", None) == Cluster("h:2", tls="full", ca_file="/ca.pem")
    monkeypatch.setenv("ORBITLOG_TLS", "sometimes")
    with pytest.raises(WrongUse, match="is not one of full, ca, none"):
        choose_cluster("h:2", None)


def test_without_anything_it_is_this_machine() -> None:
    assert choose_cluster(None, None) == Cluster("127.0.0.1:9876")


def test_a_context_that_is_not_there(shop: Contexts) -> None:
    with pytest.raises(WrongUse, match=r"unknown context 'shpo' \(available: shop, test\)"):
        choose_cluster(None, "shpo")


@pytest.mark.parametrize("text", ["{", "[]", '{"contexts": {"a": []}}', '{"contexts": {"a": {"nameServers": 1}}}'])
def test_a_file_that_is_none_is_named(home: Path, text: str) -> None:
    path = contexts_path()
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(Problem, match=str(path)):
        load_contexts()


def test_a_relative_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert contexts_path({"XDG_CONFIG_HOME": "here"}) == Path.home() / ".config" / "orbitlog" / "contexts.json"


def test_the_commands(run: Any, home: Path) -> None:
    assert run("context", "show").exit_code == 2
    assert run("context", "add", "shop", "-n", "10.0.0.1").stdout == "context shop is 10.0.0.1, in use\n"
    run("context", "add", "test", "-n", "10.0.0.2", "--access-key", "key", "--secret-key", "hush")
    rows = run("context", "list", "--json").rows
    assert [(row["name"], row["inUse"], row["secretKey"]) for row in rows] == [
        ("shop", True, None),
        ("test", False, "kept"),
    ]
    assert "hush" not in run("context", "show", "test").stdout
    assert run("context", "use", "test").exit_code == 0
    assert run("context", "show", "-f", "{name} {nameServers}").stdout == "test 10.0.0.2\n"
    assert run("context", "remove", "test", "--json").rows[0]["name"] == "test"
    assert run("context", "use", "test").exit_code == 2
    assert "hush" not in (home / "orbitlog" / "contexts.json").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["add", "bad/name", "-n", "h:1"],
        ["add", "name", "-n", "h:1:2:3"],
        ["add", "name", "-n", "h:1", "--access-key", "alone"],
        ["remove", "nobody"],
    ],
)
def test_mistakes_leave_no_file(run: Any, home: Path, words: list[str]) -> None:
    ran = run("context", *words)
    assert ran.exit_code in (1, 2)
    assert len(ran.sentences) == 1
    assert list(home.iterdir()) == []


def test_a_secret_from_standard_input_stands_in_no_history(home: Path) -> None:
    from click.testing import CliRunner

    from orbitlog.cli.main import cli

    words = ["context", "add", "a", "-n", "h:1", "--access-key", "k", "--secret-key", "-"]
    assert CliRunner().invoke(cli, words, input="hush\n").exit_code == 0
    assert load_contexts().table["a"].secret_key == "hush"


def test_security_token_belongs_to_the_credentials_beside_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("10.0.0.1:9876", "key", "secret", security_token="token")
    Contexts(contexts_path(), {"shop": cluster}, "shop").save()
    assert choose_cluster(None, None) == cluster
    assert "token" not in repr(cluster).replace("security_token", "")
    monkeypatch.setenv("ORBITLOG_ACCESS_KEY", "other")
    monkeypatch.setenv("ORBITLOG_SECRET_KEY", "other-secret")
    assert choose_cluster(None, None).security_token == ""
    monkeypatch.setenv("ORBITLOG_SECURITY_TOKEN", "other-token")
    assert choose_cluster(None, None).security_token == "other-token"
