"""Import budget: modules and processor time that `import orbitlog` and common commands cost before they do anything.

Each limit of modules is the measured count and a tenth. A change over it is a question: does every start need that
module? The limits of processor time are several times what is measured, as machines differ: they find an import of a
large package, not a small regression.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = """
import sys
before = set(sys.modules)
if sys.argv[1:] == ["import"]:
    import orbitlog
else:
    from orbitlog.cli.main import cli
    try:
        cli.main(sys.argv[1:], prog_name="orbitlog")
    except SystemExit:
        pass
print("loaded:", len(set(sys.modules) - before), file=sys.stderr)
"""
TRIES = 3


def start(words: str, home: Path) -> tuple[int, float]:
    """Return the modules that a start loads, and its processor time; no server listens at its address."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home), "ORBITLOG_NAME_SERVER": "127.0.0.1:1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, *words.split()], capture_output=True, text=True, timeout=60, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return int(ran.stderr.splitlines()[-1].removeprefix("loaded: ")), seconds


@pytest.mark.parametrize(
    ("words", "modules_max", "seconds_max"),
    [("import", 30, 0.2), ("--help", 90, 0.4), ("topic list", 235, 0.8), ("send T body", 295, 1.0)],
)
def test_start_stays_within_its_import_budget(words: str, modules_max: int, seconds_max: float, tmp_path: Path) -> None:
    starts = [start(words, tmp_path) for _ in range(TRIES)]
    assert {modules for modules, _ in starts} == {starts[0][0]}
    assert modules_max / 2 < starts[0][0] <= modules_max
    assert min(seconds for _, seconds in starts) <= seconds_max
