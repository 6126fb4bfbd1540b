"""The outermost command: what it costs to start, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from orbitlog.cli import main
from orbitlog.cli.dump import cmd_dump
from orbitlog.cli.lazy_group import LazyGroup
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]
HEAVY = ("numpy", "numba", "pyarrow", "rich", "pyspark", "lz4", "backports", "orbitlog.formats", "orbitlog.store")
COMMAND = [sys.executable, "-c", "from orbitlog.cli.main import main; main()"]


def orbitlog(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize("arguments", ["--help", "dump --help", "--version", "nonsense", ""])
def test_help_imports_nothing_heavy(arguments: str) -> None:
    script = f"""
import sys
from orbitlog.cli.main import cli
try:
    cli.main({arguments.split()!r}, prog_name="orbitlog")
except SystemExit:
    pass
print("loaded:", *sorted(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    loaded = ran.stdout.splitlines()[-1].split()[1:]
    assert "click" in loaded
    assert [name for name in loaded if name.startswith(HEAVY)] == []


def all_commands(group: LazyGroup) -> list[tuple[str, click.Command]]:
    context = click.Context(group)
    found: list[tuple[str, click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((name, command))
        if isinstance(command, LazyGroup):
            found += all_commands(command)
    return found


def test_every_command_of_the_tables_exists_under_its_name() -> None:
    commands = all_commands(main.cli)
    assert {"dump", "demo", "commitlog", "timerlog"} <= {name for name, _ in commands}
    for name, command in commands:
        assert command.name == name
        assert command.help


@pytest.mark.parametrize("kind", cmd_dump.KINDS)
def test_every_dump_answers_help_and_has_json(run: Any, kind: str) -> None:
    ran = run("dump", kind, "--help")
    assert ran.exit_code == 0
    assert "--json" in ran.stdout


@pytest.mark.parametrize(
    "arguments", [["--bogus"], ["nonsense"], ["dump", "nonsense"], ["dump", "commitlog"], ["dump", "index", "--limit"]]
)
def test_wrong_use_is_one_sentence_with_a_hint(run: Any, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.exit_code, ran.stdout, len(ran.sentences)) == (2, "", 1)
    assert "--help`" in ran.stderr


@pytest.mark.parametrize("arguments", [[], ["dump"]])
def test_nothing_to_do_shows_the_help(arguments: list[str]) -> None:
    ran = orbitlog(*arguments)
    assert ran.returncode == 2
    assert ran.stderr.startswith("Usage: orbitlog")


def test_version() -> None:
    ran = orbitlog("--version")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("orbitlog")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(golden_497: GoldenStore, golden_copy: Copy, run: Any) -> None:
    copy = golden_copy(golden_497)
    segment = copy.store / "commitlog" / ("0" * 20)
    segment.chmod(0)
    ran = run("dump", "commitlog", copy.store)
    assert (ran.exit_code, ran.sentences) == (1, [f"orbitlog: {segment}: permission denied"])


def test_an_error_of_the_system_is_one_sentence(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "some/file")

    monkeypatch.setattr(Path, "iterdir", refuse)
    ran = run("dump", "index", tmp_path)
    assert (ran.exit_code, ran.sentences) == (1, ["orbitlog: some/file: permission denied"])


def test_an_interrupt_ends_quietly(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "iterdir", interrupt)
    ran = run("dump", "index", tmp_path)
    assert (ran.exit_code, ran.stdout, ran.stderr) == (130, "", "")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_closed_pipe_ends_quietly(golden_550_crash: GoldenStore, form: list[str]) -> None:
    command = [*COMMAND, "dump", "commitlog", str(golden_550_crash.store), *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        complaint = process.stderr.read()
        assert (process.wait(60), complaint) == (0, b"")


def test_a_terminal_that_knows_only_ascii_gets_escapes(golden_497: GoldenStore) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = orbitlog("dump", "commitlog", golden_497.store, env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\\u" in ran.stdout


def test_no_colours_and_no_escapes_without_a_terminal(golden_497: GoldenStore) -> None:
    assert "\x1b" not in orbitlog("dump", "commitlog", golden_497.store).stdout
