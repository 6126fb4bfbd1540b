"""Commands without the extra `fast`: the same output and the same bytes as with compiled kernels.

A child process hides the packages of the extra. `tests/test_clean_install.py` has an installation without them, and
`make core` runs the tests of doctor, jobs and store without them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.doctor_outcomes import ROOT, outcome_of

HIDING = "import tests.support.without_fast as plugin; from orbitlog.cli.main import main; main()"
SHOWING = "from orbitlog.cli.main import main; main()"


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
def test_doctor_without_kernels_finds_and_repairs_the_same(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    golden = request.getfixturevalue(name)
    steps = (("doctor", "check", "--json"), ("doctor", "explain", "--json"), ("doctor", "repair", "--apply", "--json"))
    plain, compiled = (
        outcome_of([sys.executable, "-c", script], tmp_path, golden, steps) for script in (HIDING, SHOWING)
    )
    assert plain == compiled
    assert isinstance(plain[0], tuple) and plain[0][0] == 1


def test_pipeline_without_kernels_names_the_extra(tmp_path: Path) -> None:
    done = run(HIDING, "pipeline", "check", tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "pip install 'orbitlog[spark]'" in done.stderr


def test_hidden_packages_cannot_be_imported() -> None:
    script = """
from tests.support.without_fast import HIDDEN
for name in HIDDEN:
    try:
        __import__(name)
    except ModuleNotFoundError:
        print(name)
"""
    assert run(script).stdout.split() == ["llvmlite", "lz4", "numba", "numpy", "pandas", "pyarrow", "pyspark"]
