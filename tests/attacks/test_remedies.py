"""Each remedy matters: without it, the test of its attack fails. Part of `make attack`, a process for each remedy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import orbitlog
from tests.support.remedies import FINDINGS, REMOVALS, Removal

SOURCE = Path(orbitlog.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
IS_LONG = int(os.environ.get("ORBITLOG_ATTACK", "1")) > 1
SECONDS_MAX = 900  # kernels of a changed source are compiled anew


def test_every_finding_has_a_remedy_whose_removal_a_test_notices() -> None:
    assert {removal.finding for removal in REMOVALS} == set(range(FINDINGS + 1))
    assert len({removal.attack for removal in REMOVALS}) == len(REMOVALS)


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.attack)
def test_text_of_a_remedy_is_in_its_module(removal: Removal) -> None:
    assert (SOURCE / removal.module).read_text().count(removal.text) == 1


@pytest.mark.skipif(not IS_LONG, reason="takes seconds for each remedy: make attack")
@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.attack)
def test_attack_succeeds_without_its_remedy(removal: Removal, tmp_path: Path) -> None:
    changed = shutil.copytree(SOURCE, tmp_path / "orbitlog", ignore=shutil.ignore_patterns("__pycache__"))
    module = changed / removal.module
    module.write_text(module.read_text().replace(removal.text, removal.replacement))
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"tests/attacks/{removal.test}"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ORBITLOG_ATTACK": "1"}
    result = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert result.returncode == 1, result.stdout[-2_000:]
