"""The power goes while a CommitLog is written in two directories: no segment is lost between two others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from orbitlog.storefiles.store_paths import StorePaths
from orbitlog.testing.crash_disk import CrashDisk
from tests.faults.power_cuts import IMAGES, KILLED, check_image, watch
from tests.support.workloads import ROOT, Workload

ROUNDS = 60
PATHS = StorePaths(ROOT, (Path("disk-a/commitlog"), Path("disk-b/commitlog")), is_configured=True)


class SpreadWorkload(Workload):
    def __init__(self, seed: int, *, sync_flush: bool) -> None:
        super().__init__(seed, sync_flush=sync_flush)
        self.config = replace(self.config, paths=PATHS)


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(2))
def test_power_cut_at_any_step_of_a_log_in_two_directories(
    sync_flush: bool, part: int, scale: int, checked: Counter[str]
) -> None:
    for run in range(scale):
        seed = part + 2 * run
        print(f"workload seed {seed}")
        workload, disk = SpreadWorkload(seed, sync_flush=sync_flush), CrashDisk()
        watch(workload, disk, Random(seed), lambda: checked.update([IMAGES]), every=12)
        workload.open(disk)
        workload.run(ROUNDS)
        assert workload.store is not None
        workload.store.close()
        used = {path.parts[0] for path in disk.files() if "commitlog" in path.parts}
        assert used == {"disk-a", "disk-b"}


def test_process_killed_at_any_step_leaves_a_log_in_two_directories_whole(scale: int, checked: Counter[str]) -> None:
    chance = Random(5)
    workload, disk = SpreadWorkload(5, sync_flush=True), CrashDisk()
    workload.open(disk)
    for _ in range(10 * scale):
        workload.run(5)
        workload.promised_to()
        seed = chance.randrange(1 << 30)
        check_image(workload, disk.kill(), seed, f"killed after step {disk.steps}")
        checked.update([KILLED])
