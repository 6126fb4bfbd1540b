"""kill -9 of a writing process on a real disk, again and again: no message that it acknowledged is ever gone."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from orbitlog.formats.records.properties import UNIQ_KEY
from orbitlog.store.message_store import MessageStore
from tests.faults.kill_writer import CONFIG

REPOSITORY = Path(__file__).resolve().parents[2]
CYCLES = 20


def acknowledged_before_kill(root: Path, seed: int, lines: int) -> list[tuple[int, int, str]]:
    """Run a writer until it has acknowledged N messages, kill it, and return its whole output."""
    command = [sys.executable, "-m", "tests.faults.kill_writer", str(root), str(seed)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = []
        for _ in range(lines):
            line = writer.stdout.readline()
            assert line, f"the writer ended by itself: {writer.wait()}"
            said.append(line)
        writer.kill()
        said += writer.stdout.readlines()
    whole = [line.split() for line in said if line.endswith("\n")]
    return [(int(start), int(size), key) for start, size, key in whole]


@pytest.mark.slow
def test_kill_loop(tmp_path: Path, scale: int, checked: Counter[str]) -> None:
    root, chance = tmp_path / "store", Random(0)
    ledger: dict[int, tuple[int, str]] = {}
    for cycle in range(CYCLES * scale):
        for start, size, key in acknowledged_before_kill(root, cycle, chance.randint(1, 60)):
            assert start not in ledger, f"two messages were acknowledged at {start}"
            ledger[start] = size, key
        with MessageStore.open(root, CONFIG, lambda: 0) as store:
            assert store.damage == []
            for start, (size, key) in ledger.items():
                message = store.read_at(start)
                assert message is not None, f"cycle {cycle}: the message at {start} was acknowledged and is gone"
                assert (message.size_bytes, message.properties[UNIQ_KEY]) == (size, key), f"cycle {cycle}"
        checked.update(["kill -9 of a writer"])
    checked.update({"acknowledged messages on a real disk": len(ledger)})
