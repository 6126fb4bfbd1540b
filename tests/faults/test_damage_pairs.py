"""Several kinds of damage at once, drawn from the zoo: nothing readable is lost, and everything can be taken back.

Not every such store can be mended: where evidence contradicts itself the doctor says so and stops. Three in every run
of the tests, always the same ones; 200 others with `make faults`.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.repair_journal import undo_last
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.errors import FormatError
from orbitlog.testing.golden import GoldenStore
from tests.support.damage_zoo import ZOO
from tests.support.repaired_stores import fingerprint, readable, still_readable

STORES, STORES_WHEN_LONG = 3, 10


@pytest.mark.slow
def test_nothing_readable_is_lost_and_all_can_be_taken_back(
    golden_497: GoldenStore, tmp_path: Path, scale: int, checked: Counter[str]
) -> None:
    seed = int(os.environ.get("ORBITLOG_SEED", "1" if scale == 1 else str(random.randrange(1 << 30))))
    print(f"ORBITLOG_SEED={seed}")
    chance = random.Random(seed)
    sound, undamaged = readable(golden_497.store), fingerprint(golden_497.store)
    for _ in range(STORES if scale == 1 else STORES_WHEN_LONG * scale):
        names = chance.sample(sorted(ZOO), chance.choice((2, 2, 3)))
        where = f"{' and '.join(names)}; ORBITLOG_SEED={seed}"
        root = golden_497.copy_to(tmp_path / "store").store
        for name in names:
            try:
                ZOO[name][0](root)
            except (OSError, IndexError, StopIteration, ValueError, FormatError):
                checked["damage that the one before left nothing for"] += 1
        damaged, wanted = fingerprint(root), still_readable(root, sound)
        if damaged == undamaged:  # files that were swapped twice
            shutil.rmtree(root)
            continue
        assert not examine(root).is_sound, where
        mended = apply_repair(root, accept_lost_segments=True)
        assert mended.is_sound or mended.problems, where
        after = readable(root)
        lost = [at for at, message in wanted.items() if at not in after or after[at][3] != message[3]]
        assert not lost, f"{len(lost)} messages can no longer be read: {where}"
        checked[
            "stores damaged several times, repaired" if mended.is_sound else "stores reported as beyond repair"
        ] += 1
        if (root / ".orbitlog-doctor").exists():
            undo_last(root)
        assert fingerprint(root) == damaged, f"undo gives other bytes: {where}"
        shutil.rmtree(root)
