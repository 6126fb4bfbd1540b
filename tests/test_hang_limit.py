"""A hanging test fails and the tests after it run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HANGS = """
import threading

def test_that_hangs():
    threading.Event().wait()

def test_after_it():
    pass
"""


def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 0.5\n")
    root = Path(__file__).parents[1]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.hang_limit",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert "1 failed, 1 passed" in run.stdout
    assert "the test hung for 1 s" in run.stdout and "threading.Event().wait()" in run.stdout
