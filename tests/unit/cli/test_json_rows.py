"""Format strings over the rows that --json prints, for commands that read files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitlog.testing.golden import GoldenStore

Copy = Callable[[GoldenStore], GoldenStore]

DUMPS = {
    "commitlog": ("dump", "commitlog", "--limit", "40"),
    "consumequeue": ("dump", "consumequeue", "--limit", "40"),
    "index": ("dump", "index", "--limit", "40"),
    "index headers": ("dump", "index", "--headers"),
    "timerlog": ("dump", "timerlog"),
    "timerwheel": ("dump", "timerwheel", "--all"),
    "doctor check": ("doctor", "check"),
}


@pytest.mark.parametrize("name", DUMPS)
def test_every_field_of_the_json_can_be_asked_for(name: str, golden_550_crash: GoldenStore, run: Any) -> None:
    words = [*DUMPS[name], golden_550_crash.store]
    rows = [row for row in run(*words, "--json").rows if "sound" not in row]
    assert rows
    for field in {field for row in rows for field in row}:
        ran = run(*words, "-f", f"<{{{field}}}>")
        lines = ran.stdout.splitlines()
        assert len(lines) == len(rows), field
        plain = [row.get(field) for row in rows]
        numbers = [line.strip("<>") for line, value in zip(lines, plain, strict=True) if type(value) in (int, str)]
        assert numbers == [str(value) for value in plain if type(value) in (int, str)]


def test_rows_end_as_the_format_says_and_damage_is_still_told(
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
    assert "there is no field 'nothing'; there are " in ran.stderr


def test_undo_tells_its_steps_as_json(golden_497: GoldenStore, tmp_path: Path, run: Any) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    shutil.rmtree(root / "index")
    assert run("doctor", "repair", root, "--apply").exit_code == 0
    ran = run("doctor", "undo", root, "--json")
    told = json.loads(ran.stdout)
    assert (ran.exit_code, told["store"]) == (0, str(root))
    assert told["changes"] == len(told["steps"]) > 0
    assert not (root / "index").exists()
