"""Format strings over the rows that --json prints, for commands that read files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from orbitlog.cli.job_options import REBUILD_FIELDS
from orbitlog.cli.main import cli
from orbitlog.cli.pipeline.pipeline_check import CHECK_FIELDS
from orbitlog.doctor.examination import Examination
from orbitlog.jobs.check.store_check import StoreCheck
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild
from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]

DUMPS = {
    "commitlog": ("dump", "commitlog", "--limit", "40"),
    "consumequeue": ("dump", "consumequeue", "--limit", "40"),
    "index": ("dump", "index", "--limit", "40"),
    "index headers": ("dump", "index", "--headers"),
    "timerlog": ("dump", "timerlog"),
    "timerwheel": ("dump", "timerwheel", "--all"),
    "checkpoint": ("dump", "checkpoint"),
    "config": ("dump", "config"),
    "doctor check": ("doctor", "check"),
    "doctor explain": ("doctor", "explain"),
    "doctor repair": ("doctor", "repair"),
}
# Those that serve say with --json that they are ready, and the tour ends with its figures: no rows.
# Servers, which print a ready line, and views that are no rows.
WITHOUT_ROWS = {"broker", "nameserver", "up", "mirror", "exporter", "demo", "top", "pipeline serve"}


@pytest.mark.parametrize("name", DUMPS)
def test_every_field_of_the_json_can_be_asked_for(name: str, golden_550_crash: GoldenStore, run: Any) -> None:
    words = [*DUMPS[name], golden_550_crash.store]
    rows = [row for row in run(*words, "--json").rows if "severities" not in row]
    assert rows
    for field in {field for row in rows for field in row}:
        ran = run(*words, "-f", f"<{{{field}}}>")
        lines = ran.stdout.splitlines()
        assert len(lines) == len(rows), field
        plain = [row.get(field) for row in rows]
        numbers = [line.strip("<>") for line, value in zip(lines, plain, strict=True) if type(value) in (int, str)]
        assert numbers == [str(value) for value in plain if type(value) in (int, str)]


def test_rows_end_as_the_format_states_and_damage_is_still_reported(
    golden_497: GoldenStore, golden_copy: Copy, run: Any
) -> None:
    root = golden_copy(golden_497).store
    segment = sorted((root / "commitlog").iterdir())[0]
    data = bytearray(segment.read_bytes())
    data[0:4] = b"\xff\xff\xff\xff"
    segment.write_bytes(data)
    ran = run("dump", "commitlog", root, "-f", r"{topic}\0")
    assert (ran.exit_code, len(ran.sentences)) == (1, 1)
    assert ran.stdout.count("\0") == 546 and "\n" not in ran.stdout


@pytest.mark.parametrize("name", DUMPS)
def test_a_field_that_is_not_there_is_refused_with_those_that_are(
    name: str, golden_550_crash: GoldenStore, run: Any
) -> None:
    ran = run(*DUMPS[name], golden_550_crash.store, "-f", "{nothing}")
    assert ran.exit_code == 2
    assert "unknown field 'nothing'; available: " in ran.stderr


def test_undo_prints_its_steps_as_json(golden_497: GoldenStore, tmp_path: Path, run: Any) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    shutil.rmtree(root / "index")
    assert run("doctor", "repair", root, "--apply").exit_code == 0
    ran = run("doctor", "undo", root, "--json")
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["store"]) == (0, str(root))
    assert told["changes"] == len(told["steps"]) > 0
    assert not (root / "index").exists()


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from commands(found, *words, name)
        elif found is not None:
            yield " ".join((*words, name)), found


def test_commands_with_json_take_a_format_string() -> None:
    options = {name: {option.name for option in one.params} for name, one in commands(cli)}
    with_json = {name for name, found in options.items() if "as_json" in found} - WITHOUT_ROWS
    assert {"pipeline export", "doctor undo", "dump config", "topic list"} <= with_json
    assert {name for name in with_json if "template" not in options[name]} == set()


@pytest.mark.parametrize(
    "words",
    [
        ("pipeline", "check"),
        ("pipeline", "rebuild", "--in-place"),
        ("pipeline", "dispatch"),
        ("pipeline", "export", "--topic", "T", "--to", "table"),
        ("doctor", "rebuild"),
        ("doctor", "undo"),
    ],
)
def test_a_wrong_format_string_costs_no_work(words: tuple[str, ...], golden_550_crash: GoldenStore, run: Any) -> None:
    ran = run(*words, golden_550_crash.store, "-f", "{nothing}")
    assert ran.exit_code == 2
    assert "unknown field 'nothing'" in ran.stderr


def test_rows_of_a_rebuild_have_the_fields_that_are_named() -> None:
    rebuilt = StoreRebuild(store="store", out="out").as_object() | {"seconds": 0.1}
    assert tuple(rebuilt) == REBUILD_FIELDS
    checked = Examination(StoreCheck("store"), (), (), ()).as_object() | {"seconds": 0.1}
    assert tuple(checked) == CHECK_FIELDS
