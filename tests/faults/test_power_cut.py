"""The power goes between any two steps of a random run: what was promised is there, and all agrees with the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from orbitlog.formats.records.message import encode_message
from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.faults.power_cuts import IMAGES, KILLED, ROUNDS, check_image, watch
from tests.support.invariants import messages_in
from tests.support.workloads import Workload

UseKernels = Callable[[bool], None]


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(4))
def test_power_cut_at_any_step(
    sync_flush: bool, part: int, scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    use_kernels(part % 2 == 1)
    for run in range(scale):
        seed = part + 4 * run
        print(f"workload seed {seed}")
        workload, disk = Workload(seed, sync_flush=sync_flush), CrashDisk()
        watch(workload, disk, Random(seed), lambda: checked.update([IMAGES]), every=12)
        workload.open(disk)
        workload.run(ROUNDS)
        assert workload.store is not None
        workload.store.close()


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(4))
def test_many_lives(sync_flush: bool, part: int, scale: int, checked: Counter[str], use_kernels: UseKernels) -> None:
    """Crash, recover, continue, crash: power cuts and kills in any order, some of them while recovering."""
    use_kernels(part % 2 == 1)
    for run in range(scale):
        seed = 1000 + part + 4 * run
        print(f"workload seed {seed}")
        chance = Random(seed)
        workload, disk = Workload(seed, sync_flush=sync_flush), CrashDisk()
        for life in range(6):
            watch(workload, disk, chance, lambda: checked.update([IMAGES]), every=60)
            disk.cut_at = disk.steps + int(chance.expovariate(1 / 150))
            try:
                workload.open(disk)
                learn_survivors(workload, disk)
                workload.run(ROUNDS // 2)
                if chance.random() < 0.3:
                    assert workload.store is not None
                    workload.store.close()
            except PowerCut:
                pass
            disk.on_step = None
            disk = end_of_life(workload, disk, chance, f"life {life}", checked)


def end_of_life(workload: Workload, disk: CrashDisk, chance: Random, told: str, checked: Counter[str]) -> CrashDisk:
    """Lose power, or only the process; returns the disk that the next life finds."""
    workload.promised_to()
    seed = chance.randrange(1 << 30)
    if chance.random() < 0.5:
        everything = workload.ledger.copy()
        if workload.store is not None:  # not killed while recovering
            everything.durable_to = workload.store.written_to
        check_image(workload, disk.kill(), seed, f"{told} killed before step {disk.steps}", everything)
        checked.update([KILLED])
        workload.store = None
        return disk.kill()
    check_image(workload, disk.crash(seed), seed, f"{told} cut before step {disk.steps}")
    checked.update([IMAGES])
    workload.store = None
    return disk.crash(seed)


def learn_survivors(workload: Workload, disk: CrashDisk) -> None:
    """Update the ledger to what was recovered: some messages are lost, and some unacknowledged ones exist."""
    assert workload.store is not None
    workload.ledger.forget_from(workload.store.written_to)
    for message in messages_in(disk.files()):
        workload.ledger.records.setdefault(message.physical_offset, encode_message(message))


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
def test_kill_loses_nothing(sync_flush: bool, scale: int, checked: Counter[str], use_kernels: UseKernels) -> None:
    for seed in range(2000, 2000 + 3 * scale):
        print(f"workload seed {seed}")
        use_kernels(seed % 2 == 1)
        workload, disk = Workload(seed, sync_flush=sync_flush), CrashDisk()
        workload.open(disk)
        for _ in range(ROUNDS // 4):
            workload.run(4)
            assert workload.store is not None
            ledger = workload.ledger.copy()
            ledger.durable_to = workload.store.written_to
            check_image(workload, disk.kill(), 0, f"killed at step {disk.steps}", ledger)
            checked.update([KILLED])
