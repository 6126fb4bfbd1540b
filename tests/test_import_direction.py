"""The contracts of `make lint` about imports can fail: each is broken once in a copy of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def package(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "orbitlog", tmp_path / "src" / "orbitlog", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path / "src" / "orbitlog"


def verdicts(package: Path) -> dict[str, str]:
    """Run the linter on the copy, not on the package that is installed."""
    answer = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=package.parent.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
    )
    return dict(re.findall(r"^(.+) (KEPT|BROKEN)$", answer.stdout, re.MULTILINE))


def broken(package: Path) -> list[str]:
    return [contract for contract, verdict in verdicts(package).items() if verdict == "BROKEN"]


def test_every_contract_is_kept(package: Path) -> None:
    assert set(verdicts(package).values()) == {"KEPT"}


@pytest.mark.parametrize(
    ("module", "source", "contract"),
    [
        ("formats/upwards.py", "from orbitlog.store import queue_lives", "imports point downwards only"),
        ("attic/__init__.py", "", "imports point downwards only"),
        ("formats/columns.py", "import numpy", "formats and wire are functions of their bytes"),
        ("formats/network.py", "def f():\n    import asyncio.streams", "formats and wire are functions of their bytes"),
        ("store/compiled.py", "import numba", "only kernels know numba and Arrow"),
        ("kernels/shown.py", "import rich.table", "only the command line knows the terminal"),
        ("cli/dump/shared.py", "from orbitlog.cli.cluster import cmd_send", "groups of commands are independent"),
        ("store/cluster.py", "import pyspark", "nothing but the pipeline knows Spark and lakes"),
    ],
)
def test_a_contract_notices(package: Path, module: str, source: str, contract: str) -> None:
    (package / module).parent.mkdir(exist_ok=True)
    (package / module).write_text(source)
    assert broken(package) == [contract]
