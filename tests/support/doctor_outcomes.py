"""Outcomes of doctor commands on a copy of a store, to compare two installations: exit codes, output and files."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orbitlog.testing.golden import GoldenStore

ROOT = Path(__file__).parents[2]
# Files of a repair's journal and of a rebuild that have times in them, and the time in output.
WITH_TIMES = ("applied", "journal.json", "orbitlog-rebuild.json")
SECONDS = re.compile(r'"seconds":[0-9.]+')


def outcome_of(
    orbitlog: Sequence[str],
    directory: Path,
    golden: GoldenStore,
    steps: Sequence[tuple[str, ...]],
    *,
    is_damaged: bool = True,
) -> list[object]:
    """Run commands on a copy, which has the same path each time, and remove it."""
    store = directory / "store"
    shutil.copytree(golden.store, store)
    if is_damaged:
        damage(store)
    found: list[object] = []
    for step in steps:
        done = subprocess.run([*orbitlog, *step, store], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert "Traceback" not in done.stderr, done.stderr
        found.append((done.returncode, SECONDS.sub("", done.stdout)))
    files = (path for path in store.rglob("*") if path.is_file() and path.name not in WITH_TIMES)
    found.append({path.relative_to(store).as_posix(): path.read_bytes() for path in files})
    shutil.rmtree(store)
    return found


def damage(store: Path) -> None:
    """Break a record, a queue and an index file, and remove a queue file."""
    segment = sorted((store / "commitlog").iterdir())[0]
    data = bytearray(segment.read_bytes())
    data[300] ^= 0xFF
    segment.write_bytes(data)
    queues = sorted((store / "consumequeue").glob("*/*/*"))
    queues[0].write_bytes(bytes(len(queues[0].read_bytes())))
    queues[-1].unlink()
    index = sorted((store / "index").iterdir())[0]
    data = bytearray(index.read_bytes())
    data[-30] ^= 1
    index.write_bytes(data)
