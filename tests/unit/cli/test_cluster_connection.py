"""What the commands at a cluster share: their options, rows in three forms, and errors that teach."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from orbitlog.cli import main
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column
from orbitlog.client.admin.administration import Administration
from orbitlog.errors import BrokerRefused, NoRoute

# They print a script, speak another tool's language, or only say that it is done.
OTHERWISE = {"completion", "mqadmin", "doctor undo"}
AT_A_CLUSTER = {
    "topic",
    "group",
    "offsets",
    "message",
    "send",
    "tail",
    "cluster",
    "config",
    "dlq",
    "transactions",
    "bench",
}
LOCAL = {"config check"}


def leaves(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command)
    found = []
    for child in command.list_commands(context):
        made = command.get_command(context, child)
        assert made is not None
        found += leaves(f"{name} {child}".strip(), made)
    return found


LEAVES = dict(leaves("", main.cli))


def spellings(command: click.Command) -> set[str]:
    return {each for option in command.params if isinstance(option, click.Option) for each in option.opts}


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_every_command_has_json_and_answers_help(name: str, run: Any) -> None:
    if name not in OTHERWISE:
        assert "--json" in spellings(LEAVES[name]) or name == "demo"
    ran = run(*name.split(" "), "--help")
    assert ran.exit_code == 0
    assert ran.stdout.startswith(f"Usage: orbitlog {name} ")


@pytest.mark.parametrize("name", sorted(each for each in LEAVES if each.split(" ")[0] in AT_A_CLUSTER - LOCAL))
def test_every_command_at_a_cluster_has_the_same_options(name: str) -> None:
    if name not in LOCAL:
        assert {"-n", "--name-server", "--context", "--json", "-f", "--format"} <= spellings(LEAVES[name])


# Rows

ROWS = [{"a": 1, "b": None}, {"a": 22, "b": ["x", "y"]}]
COLUMNS = (Column("a", right=True), Column("b"))


def test_rows_in_three_forms(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(COLUMNS, ROWS, Output())
    assert capsys.readouterr().out == " a  b\n 1\n22  x,y\n"
    show_rows(COLUMNS, ROWS, Output(as_json=True))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ROWS
    show_rows(COLUMNS, ROWS, Output(template="{a}={b}"))
    assert capsys.readouterr().out == "1=\n22=x,y\n"


# Errors that teach


def refused_with(monkeypatch: pytest.MonkeyPatch, error: Exception, topic: str | None, topics: list[str]) -> str:
    """What a user reads when the cluster refuses so."""

    async def told(_: Administration) -> list[str]:
        return topics

    async def work(_: Administration) -> None:
        await asyncio.sleep(0)
        raise error

    monkeypatch.setattr(Administration, "topics", told)
    with pytest.raises((Problem, type(error))) as caught:
        run_with_admin(Cluster("127.0.0.1:1"), work, topic=topic)
    return caught.value.format_message() if isinstance(caught.value, Problem) else str(caught.value)


def test_a_name_that_is_nearly_right(monkeypatch: pytest.MonkeyPatch) -> None:
    told = refused_with(monkeypatch, NoRoute("no"), "Ordres", ["Orders", "Returns", "Orders2"])
    assert told == "no broker serves topic Ordres; did you mean Orders or Orders2?"
    told = refused_with(monkeypatch, BrokerRefused(17, "topic not exist"), "Zzz", ["Orders"])
    assert told == "no broker serves topic Zzz; list topics with `orbitlog topic list`"


def test_what_is_no_matter_of_names_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused_with(monkeypatch, NoRoute("no broker is there"), "Orders", ["Orders"]) == "no broker is there"
    assert refused_with(monkeypatch, NoRoute("no broker is there"), "Orders", []) == "no broker is there"
    assert refused_with(monkeypatch, NoRoute("no broker is there"), None, ["Orders"]) == "no broker is there"


def test_refused_access_error_names_the_source_of_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    error = BrokerRefused(16, "no", advice="the topic, group or user lacks the permission for this")
    told = refused_with(monkeypatch, error, None, [])
    assert "lacks the permission" in told and "`orbitlog context add NAME --access-key ...`" in told


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:1", "start one with `orbitlog up`, or give its address with -n or --context"),
        ("a:b:c", "is not a valid host:port address"),
        ("host:99999", "is not a valid host:port address"),
    ],
)
def test_a_wrong_address(run: Any, address: str, sentence: str) -> None:
    ran = run("topic", "list", "-n", address)
    assert (ran.exit_code, ran.stdout, len(ran.sentences)) == (1, "", 1)
    assert sentence in ran.stderr


# Colours


def on_a_terminal(words: list[str], environment: dict[str, str]) -> bytes:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    try:
        command = [sys.executable, "-c", "from orbitlog.cli.main import main; main()", *words]
        subprocess.run(command, stdout=theirs, env={**os.environ, **environment}, timeout=60, check=True)
        return os.read(ours, 1 << 16)
    finally:
        os.close(theirs)
        os.close(ours)


def test_colours_only_on_a_terminal_that_wants_them(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NO_COLOR", raising=False)
    run("context", "add", "shop", "-n", "10.0.0.1")
    assert b"\x1b[1mname" in on_a_terminal(["context", "list"], {"TERM": "xterm"})
    assert b"\x1b" not in on_a_terminal(["context", "list"], {"TERM": "xterm", "NO_COLOR": "1"})
    assert "\x1b" not in run("context", "list").stdout
