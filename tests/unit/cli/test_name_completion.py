"""Completion: names that were asked for are kept, and nothing that goes wrong reaches the shell."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orbitlog.cli import name_completion
from orbitlog.cli.contexts import Cluster, Contexts, contexts_path
from orbitlog.cli.name_completion import CACHE_SECONDS, cache_path, cached_names
from orbitlog.errors import ConnectFailed

CLUSTER = Cluster("10.0.0.1:9876")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def complete(words: str, shell: str = "bash", **environment: str) -> list[str]:
    """The completions of a shell after these words."""
    asked = {
        "_ORBITLOG_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    command = [sys.executable, "-c", "from orbitlog.cli.main import main; main()"]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **asked, **environment}
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return [line.removeprefix("plain,") for line in ran.stdout.splitlines() if line]


def test_names_are_asked_for_once_in_half_a_minute() -> None:
    asked = []

    def ask(_: Cluster, kind: str) -> list[str]:
        asked.append(kind)
        return ["one", "two"]

    assert cached_names(CLUSTER, "topics", ask) == cached_names(CLUSTER, "topics", ask) == ["one", "two"]
    cached_names(CLUSTER, "groups", ask)
    cached_names(Cluster("10.0.0.1:9876", "somebody"), "topics", ask)
    assert asked == ["topics", "groups", "topics"]
    old = time.time() - CACHE_SECONDS - 1
    os.utime(cache_path(CLUSTER, "topics"), (old, old))
    cached_names(CLUSTER, "topics", ask)
    assert asked == ["topics", "groups", "topics", "topics"]


def test_a_cluster_that_does_not_answer_is_left_alone_for_a_while() -> None:
    def refuse(_: Cluster, __: str) -> list[str]:
        raise ConnectFailed("nobody")

    def never(_: Cluster, __: str) -> list[str]:
        raise AssertionError

    assert cached_names(CLUSTER, "topics", refuse) == []
    assert cached_names(CLUSTER, "topics", never) == []


def test_torn_cache_is_fetched_from_the_cluster() -> None:
    path = cache_path(CLUSTER, "topics")
    path.parent.mkdir(parents=True)
    path.write_text('["on')
    assert cached_names(CLUSTER, "topics", lambda *_: ["one"]) == ["one"]


def test_a_shell_is_offered_commands_options_topics_and_contexts() -> None:
    path = cache_path(Cluster("10.9.9.9:1"), "topics")
    path.parent.mkdir(parents=True)
    path.write_text('["Orders", "Returns"]')
    Contexts(contexts_path(), {"shop": CLUSTER}, None).save()
    environment = {"ORBITLOG_NAME_SERVER": "10.9.9.9:1"}
    assert complete("orbitlog mes") == ["message"]
    assert complete("orbitlog topic de") == ["delete"]
    assert complete("orbitlog mqadmin topicS") == ["topicStatus"]
    assert "--queues" in complete("orbitlog topic create --q")
    assert complete("orbitlog topic show Or", **environment) == ["Orders"]
    assert complete("orbitlog topic list --context sh") == ["shop"]
    assert complete("orbitlog topic show X", ORBITLOG_NAME_SERVER="127.0.0.1:1") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell(shell: str, home: Path) -> None:
    command = [sys.executable, "-c", "from orbitlog.cli.main import main; main()", "completion", shell]
    script = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"{shell}_complete" in script and "_ORBITLOG_COMPLETE" in script
    if shell == "bash":
        checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_what_is_waited_for_is_short() -> None:
    assert name_completion.TIMEOUT_SECONDS <= 1
