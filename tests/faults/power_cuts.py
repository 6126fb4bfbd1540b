"""Power cuts: a watched workload, and the checks of each crash image."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.support.invariants import check_recovered
from tests.support.workloads import Ledger, Workload

IMAGES = "images of a disk after a power cut"
KILLED = "disks after the process was killed"
ROUNDS = 60


def check_image(workload: Workload, disk: CrashDisk, seed: int, told: str, ledger: Ledger | None = None) -> None:
    """Check one image, and on failure say how to get it again."""
    try:
        check_recovered(disk, workload.config, ledger or workload.ledger.copy())
    except (Exception, PowerCut) as error:
        raise AssertionError(f"{told}, image {seed}: {type(error).__name__}: {error}") from error


def watch(workload: Workload, disk: CrashDisk, chance: Random, looked: Callable[[], None], *, every: int) -> None:
    """Look at an image before a step now and then, until the disk is dropped."""

    def look() -> None:
        if chance.randrange(every) == 0:
            workload.promised_to()
            seed = chance.randrange(1 << 30)
            check_image(workload, disk.crash(seed), seed, f"before step {disk.steps}, after {disk.last_step!r}")
            looked()

    disk.on_step = look
