"""No kernel reads outside its bytes: run on bytes fenced in by memory that may not be touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SEED = 20_260_101


@pytest.mark.skipif(sys.platform == "win32", reason="fences memory with mprotect, which Windows lacks")
def test_kernels_stay_inside_their_bytes() -> None:
    command = [sys.executable, "-m", "tests.contract.bounds_probe", str(SEED)]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"seed {SEED}: exit {run.returncode}\n{run.stderr[-2000:]}"
    assert int(run.stdout.split()[0]) > 2000


@pytest.mark.skipif(sys.platform == "win32", reason="fences memory with mprotect, which Windows lacks")
def test_the_fence_does_kill() -> None:
    program = (
        "import ctypes\nfrom tests.contract.bounds_probe import Fenced, np\n"
        "view = Fenced().at_end(b'x')\naddress = np.frombuffer(view, np.uint8).ctypes.data\n"
        "print(ctypes.string_at(address + 1, 1))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], capture_output=True, check=False
    )
    assert run.returncode < 0
