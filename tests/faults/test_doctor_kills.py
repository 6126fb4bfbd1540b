"""The doctor killed -9 at random moments: the store is never worse than it was, and the next run ends the work.

A few kills in every run of the tests, more with `make faults`.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair import apply_repair
from orbitlog.doctor.repair_journal import undo_last
from orbitlog.doctor.store_use import taken
from orbitlog.testing.golden import GoldenStore
from tests.unit.doctor.damage_zoo import ZOO
from tests.unit.doctor.test_repair import assert_served, fingerprint, readable

KILLS = 3 * int(os.environ.get("ORBITLOG_FAULTS", "1"))
INCIDENT = "noise_in_log_queue_and_index"


def run_and_kill(verb: str, root: Path, seconds: float) -> bool:
    """Run a doctor, and kill it so long after it began to work; False if it had ended by then."""
    command = [sys.executable, "-m", "tests.faults.doctor_process", verb, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        time.sleep(seconds)
        process.kill()
        return process.wait() != 0


@pytest.mark.slow
def test_a_doctor_that_is_killed_makes_nothing_worse(golden_497: GoldenStore, tmp_path: Path) -> None:
    seed = int(os.environ.get("ORBITLOG_SEED", str(random.randrange(1 << 30))))
    print(f"ORBITLOG_SEED={seed}")
    chance = random.Random(seed)
    broken = golden_497.copy_to(tmp_path / "broken").store
    ZOO[INCIDENT][0](broken)
    damaged, wanted = fingerprint(broken), readable(broken)
    for number in range(KILLS):
        root = tmp_path / f"store{number}"
        shutil.copytree(broken, root)
        run_and_kill("repair", root, chance.random() * 1.0)
        if number % 2:
            with taken(root):
                if (root / ".orbitlog-doctor").exists() and any((root / ".orbitlog-doctor").glob("*/journal.json")):
                    undo_last(root)
            now = {name: found for name, found in fingerprint(root).items() if not name.startswith(".orbitlog")}
            assert now == damaged
        assert apply_repair(root).is_sound
        run_and_kill(chance.choice(("rebuild", "undo")), root, chance.random() * 0.5)
        assert apply_repair(root).is_sound
        assert examine(root).is_sound
        assert_served(root, wanted)
        shutil.rmtree(root)
