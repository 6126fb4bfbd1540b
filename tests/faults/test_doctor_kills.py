"""The doctor killed -9 at random calls of the file system: the store is never worse, and the next run ends the work.

One kill of each command in every run of the tests, always the same; 200 in all with `make faults`. Each failure prints
the seed that repeats it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.repair_journal import interrupted
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats.store_tree import DOCTOR
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import ZOO
from tests.support.repaired_stores import assert_served, fingerprint, readable

KILLS_WHEN_LONG = 10
# Damage of the log, of derived files and of the config; for rebuild only what it repairs.
INCIDENTS = {
    "check": ("noise_in_log_queue_and_index", "missing_middle_segment"),
    "repair": ("noise_in_log_queue_and_index", "missing_middle_segment", "swapped_segments", "disk_full_while_rolling"),
    "rebuild": ("deleted_consumequeue", "flipped_bit_in_a_unit", "truncated_index_file"),
    "undo": ("noise_in_log_queue_and_index", "deleted_consumequeue"),
}


def run(verb: str, root: Path, call: int | None = None) -> int:
    """Run a doctor; returns how many calls it made, or raises unless it was killed at the one that was named."""
    words = [sys.executable, "-m", "tests.faults.doctor_process", verb, str(root)]
    done = subprocess.run([*words, *([] if call is None else [str(call)])], capture_output=True, text=True, check=False)
    if call is not None and done.returncode == -signal.SIGKILL:
        return call
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def files(root: Path) -> dict[str, str]:
    """Every file of the store with its bytes, but for what the doctor keeps for itself."""
    return {name: found for name, found in fingerprint(root).items() if not name.startswith(DOCTOR)}


class Undisturbed:
    """What each verb makes of each damaged store if it is not killed."""

    def __init__(self, golden: GoldenStore, directory: Path) -> None:
        self._golden = golden
        self._directory = directory
        self.damaged = cache(self._damaged)
        self.outcome = cache(self._outcome)
        self.readable = cache(self._readable)

    def _damaged(self, verb: str, incident: str) -> Path:
        """A store as the verb finds it: damaged; for `undo` damaged and repaired."""
        root = self._golden.copy_to(self._directory / f"{verb}-{incident}").store
        ZOO[incident][0](root)
        if verb == "undo":
            assert apply_repair(root, accept_lost_segments=True).is_sound
        return root

    def _outcome(self, verb: str, incident: str) -> tuple[int, dict[str, str]]:
        """How many calls the verb makes, and the files that it leaves."""
        root = self._directory / f"{verb}-{incident}-done"
        shutil.copytree(self.damaged(verb, incident), root)
        return run(verb, root), files(root)

    def _readable(self, verb: str, incident: str) -> set[int]:
        """The messages that must be readable at every moment; placeholders may go when a repair is taken back."""
        found = readable(self.damaged(verb, incident)).keys()
        return found & readable(self._directory / f"{verb}-{incident}-done").keys() if verb == "undo" else set(found)


def findings(root: Path) -> Counter[tuple[str, str, int | None]]:
    return Counter(
        (one.kind, Path(one.path).name, one.physical_offset) for one in examine(root).findings if one.kind != "repair"
    )


@pytest.mark.slow
def test_a_doctor_that_is_killed_makes_nothing_worse(
    golden_497: GoldenStore, tmp_path: Path, scale: int, checked: Counter[str]
) -> None:
    seed = int(os.environ.get("ORBITLOG_SEED", "1" if scale == 1 else str(random.randrange(1 << 30))))
    print(f"ORBITLOG_SEED={seed}")
    chance = random.Random(seed)
    undisturbed = Undisturbed(golden_497, tmp_path)
    verbs = list(INCIDENTS)
    for number in range(len(verbs) if scale == 1 else KILLS_WHEN_LONG * scale):
        verb = verbs[number % len(verbs)]
        incident = chance.choice(INCIDENTS[verb])
        damaged = undisturbed.damaged(verb, incident)
        calls, outcome = undisturbed.outcome(verb, incident)
        root = tmp_path / "store"
        shutil.copytree(damaged, root)
        call = chance.randrange(1, calls + 1)
        where = f"{verb} of {incident}, killed at call {call} of {calls}; ORBITLOG_SEED={seed}"

        run(verb, root, call)
        assert_not_worse(damaged, root, undisturbed.readable(verb, incident), where)
        checked["doctors killed"] += 1
        if verb != "undo" or any((root / DOCTOR).glob("*/journal.json")):
            run(verb, root)
        assert files(root) == outcome, f"another end than without the kill: {where}"
        assert interrupted(root) == [], where
        if verb in ("repair", "rebuild"):
            assert examine(root).is_sound, where
        shutil.rmtree(root)


def assert_not_worse(before: Path, after: Path, wanted: set[int], where: str) -> None:
    """Before a journal stands nothing has changed; from then on all of it can be ended or taken back.

    A repair goes in rounds, each with a journal: between two of them the log is mended, and what is derived from it not
    yet. Of the log itself nothing may be less readable at any moment.
    """
    if (journals := list((after / DOCTOR).glob("*/journal.json"))) == list((before / DOCTOR).glob("*/journal.json")):
        assert files(after) == files(before), f"changed without a journal: {where}"
        assert findings(after) == findings(before), f"other findings: {where}"
    if interrupted(after):
        assert any(one.kind == "repair" for one in examine(after).findings), f"not told as interrupted: {where}"
    lost = wanted - readable(after).keys()
    assert not lost, f"{len(lost)} messages can no longer be read: {where}"
    if journals and not (before / DOCTOR).exists():
        taken_back = after.with_name("taken-back")
        shutil.copytree(after, taken_back)
        run("undo", taken_back)
        assert files(taken_back) == files(before), f"undo gives other bytes: {where}"
        shutil.rmtree(taken_back)


@pytest.mark.slow
def test_repaired_store_that_was_killed_on_the_way_is_served(golden_497: GoldenStore, tmp_path: Path) -> None:
    root = golden_497.copy_to(tmp_path / "store").store
    ZOO["noise_in_log_queue_and_index"][0](root)
    wanted = readable(root)
    for call in (40, 400, 800):
        run("repair", root, call)
    assert apply_repair(root, accept_lost_segments=True).is_sound
    assert_served(root, wanted)
