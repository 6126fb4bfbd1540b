"""Each remedy matters: without it, the test of its attack fails. `make remedies` removes them one after another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import orbitlog
from tests.support.remedies import FINDINGS, REMOVALS, Removal

SOURCE = Path(orbitlog.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
CHANGES = ROOT / "tests" / "support" / "removed_remedy"
IS_LONG = os.environ.get("ORBITLOG_REMEDIES") == "all"
SECONDS_MAX = 300


def test_every_finding_has_a_remedy_whose_removal_a_test_notices() -> None:
    assert {removal.finding for removal in REMOVALS} == set(range(FINDINGS + 1))
    assert len({removal.attack for removal in REMOVALS}) == len(REMOVALS)


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.attack)
def test_text_of_a_remedy_is_in_its_module(removal: Removal) -> None:
    assert (SOURCE / removal.module).read_text().count(removal.text) == 1


@pytest.mark.skipif(not IS_LONG, reason="takes seconds for each remedy: make remedies")
@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.attack)
def test_attack_succeeds_without_its_remedy(removal: Removal, tmp_path: Path) -> None:
    name = "orbitlog." + removal.module.removesuffix(".py").replace("/", ".")
    change = {
        "name": name,
        "text": removal.text,
        "replacement": removal.replacement,
        "loaded": str(tmp_path / "loaded"),
    }
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-rf",
        "-p",
        "no:cacheprovider",
        f"tests/attacks/{removal.test}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(CHANGES), "ORBITLOG_REMOVAL": json.dumps(change)}
    environment |= {"ORBITLOG_ATTACK": "1", "ORBITLOG_REMEDIES": ""}
    result = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX)
    assert (tmp_path / "loaded").exists(), "the test never uses the remedy"
    assert result.returncode == 1 and "1 failed" in result.stdout, result.stdout[-2_000:]
    sys.stdout.write("".join(line for line in result.stdout.splitlines(True) if line.startswith("FAILED")))
