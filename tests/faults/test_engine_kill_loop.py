"""kill -9 of a process that owns dispatch, on a real disk and inside the kernels, while the broker serves."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.spark.live_store import REPOSITORY, check_store, live_writer

ENGINES = "kill -9 of a process that owned dispatch"
KILLS = 6


@pytest.mark.slow
def test_engine_kill_loop(tmp_path: Path, scale: int, checked: Counter[str]) -> None:
    seed = scale
    print(f"seed {seed}")
    root, chance = tmp_path / "store", Random(seed)
    with live_writer(root, seed, rate=3000) as writer:
        for _ in range(KILLS * scale):
            command = [sys.executable, "-m", "tests.faults.outside_engine", str(root)]
            with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as engine:
                assert engine.stdout is not None
                assert engine.stdout.readline() == "taken\n"
                time.sleep(chance.random() * 0.3)
                engine.kill()
            checked.update([ENGINES])
            if chance.random() < 0.3:
                assert writer.ask("back")["is_inline"]
                writer.ask("over")
        ended = writer.ask("close")
    assert check_store(root) == ended["sent"] > 0
