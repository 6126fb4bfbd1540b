"""A broker under everyday load for a while: its memory and its descriptors stay what they were, and nothing is lost.

A minute in `make test`; ten in `make soak`.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.soak.everyday_load import EverydayLoad
from tests.soak.serving_process import Held, ServingProcess

SECONDS = int(os.environ.get("ORBITLOG_SOAK_SECONDS", "60"))
SAMPLES = 60
# Memory climbs by some megabytes until the collector has gone through the oldest objects for the first time, after a
# minute or two, and stays there. A leak of a hundred bytes a message is more than this in the ten minutes.
MEMORY_GROWTH_MAX_MIB = 8.0
# Connections that happen to be open at the moment of a look.
DESCRIPTORS_GROWTH_MAX = 12
DRAINED_SECONDS_MAX = 120


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc, which Linux has")
def test_memory_and_descriptors_stay_flat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = random.SystemRandom().getrandbits(32)
    process = ServingProcess(tmp_path)
    process.start()
    try:
        load = EverydayLoad(process.name_server, process.broker, seed)
        looks = asyncio.run(_soak(load, lambda: process.held))
    finally:
        status = process.stop()
    assert status == 0
    assert load.acknowledged, "nothing was served"
    assert load.acknowledged <= load.seen, f"seed {seed}: lost {sorted(load.acknowledged - load.seen)[:5]}"
    # The first third is for tables to fill.
    third = len(looks) // 3
    grown_mib = _steady_growth([look.memory_mib for look in looks[third:]])
    descriptors_grown = max(look.descriptors for look in looks[2 * third :]) - max(
        look.descriptors for look in looks[third : 2 * third]
    )
    with capsys.disabled():
        print(
            f"\nsoak of {SECONDS} s: {len(load.acknowledged):,} messages, {load.rounds} topics made and deleted; at"
            f" each sixth look memory of {[round(look.memory_mib, 1) for look in looks[::6]]} MiB, descriptors"
            f" {[look.descriptors for look in looks[::6]]}"
        )
    assert grown_mib <= MEMORY_GROWTH_MAX_MIB, f"seed {seed}: {[round(look.memory_mib, 1) for look in looks]}"
    assert descriptors_grown <= DESCRIPTORS_GROWTH_MAX, f"seed {seed}: {[look.descriptors for look in looks]}"


def _steady_growth(values: list[float]) -> float:
    """Add up the steps but for the largest few: loading the kernels, when there is much to do, takes 40 MiB once."""
    steps = sorted(after - before for before, after in pairwise(values))
    return sum(steps[: len(steps) - len(steps) // 6])


async def _soak(load: EverydayLoad, look: Callable[[], Held]) -> list[Held]:
    looks = []
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(activity()) for activity in load.activities]
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(SECONDS / SAMPLES)
            looks.append(look())
        load.stop()
        _, late = await asyncio.wait(running, timeout=DRAINED_SECONDS_MAX)
        for task in late:
            task.cancel()
    return looks
