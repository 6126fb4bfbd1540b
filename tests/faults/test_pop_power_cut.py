"""The power goes while POP consumers have messages out: none is lost, and what was acknowledged and saved stays done.

A broker's own parts on a clock that is turned, as in `kept_aside`; nothing waits, and the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from random import Random

import pytest

from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.faults.kept_aside import Clock
from tests.faults.pop_ledger import INVISIBLE_MS, LIVES, STEPS, Ledger, Out, Pops

IMAGES = "images of a disk while POP consumers have messages out"


def check_image(disk: CrashDisk, ledger: Ledger, durable_to: int, now_ms: int) -> None:
    """Open what a crash left, let time pass, pop everything, and hold it against the ledger."""
    pops = Pops(disk, Clock(now_ms))
    survived_to = pops.store.written_to
    assert survived_to >= durable_to
    wanted = {name for name, end in ledger.ends.items() if end <= survived_to}
    came: set[str] = set()
    places: set[tuple[str, int]] = set()
    for _ in range(6):
        while out := pops.pop(32):
            came |= {each.name for each in out}
            places |= {each.place for each in out}
            for each in out:
                pops.acknowledge(each)
        pops.clock.now_ms += INVISIBLE_MS
        for _ in range(4):
            pops.revive()
    pops.close()
    lost = wanted - came - ledger.done
    assert not lost, f"{sorted(lost)} was not redelivered"
    if not ledger.is_saving:
        again = places & ledger.done_and_saved
        assert not again, f"{sorted(again)} were done, that was saved, and they came again"


def one_life(
    seed: int, life: int, disk: CrashDisk, clock: Clock, ledger: Ledger, chance: Random, checked: Counter[str]
) -> CrashDisk:
    """Let a broker work until the power goes; returns the disk that the next one finds."""
    pops = Pops(disk, clock)
    ledger.ends = {name: end for name, end in ledger.ends.items() if end <= pops.store.written_to}
    if ledger.is_saving:
        # One of two files that belong together may be older: messages past the offset are redelivered.
        ledger.is_saving, ledger.done_and_saved = False, set()
    ledger.standing = set(ledger.done_and_saved)
    out: list[Out] = []

    def look() -> None:
        if chance.randrange(20) == 0:
            image = chance.randrange(1 << 30)
            try:
                check_image(disk.crash(image), ledger.copy(), pops.store.flushed_to, clock.now_ms)
            except (Exception, PowerCut) as error:
                told = f"seed {seed}, life {life}, before step {disk.steps}, image {image}"
                raise AssertionError(f"{told}: {type(error).__name__}: {error}") from error
            checked.update([IMAGES])

    def save(loop: asyncio.AbstractEventLoop) -> None:
        done = set(ledger.standing)
        ledger.is_saving = True
        loop.run_until_complete(pops.saver.save_offsets())
        ledger.is_saving, ledger.done_and_saved = False, done

    def one_step(number: int, loop: asyncio.AbstractEventLoop) -> None:
        kind = chance.randrange(12)
        if kind < 4:
            ledger.ends[f"{life}-{number}"] = pops.send(f"{life}-{number}")
        elif kind < 6:
            out.extend(pops.pop(chance.randint(1, 4)))
        elif kind < 8 and out:
            each = out.pop(chance.randrange(len(out)))
            if clock.now_ms < each.visible_ms:
                ledger.done.add(each.name)
                ledger.standing.add(each.place)
            pops.acknowledge(each)
        elif kind == 8:
            clock.now_ms += chance.choice([1, 1_000, INVISIBLE_MS])
            pops.revive()
        elif kind == 9:
            save(loop)
        else:
            chance.choice([pops.store.flush_log, pops.store.flush_derived, pops.dispatch])()

    disk.on_step = look
    disk.cut_at = disk.steps + chance.randrange(100, 500)
    with asyncio.Runner() as runner:
        try:
            for number in range(STEPS):
                one_step(number, runner.get_loop())
        except PowerCut:
            pass
    disk.on_step = None
    pops.close()
    return disk.kill() if chance.random() < 0.3 else disk.crash(chance.randrange(1 << 30))


@pytest.mark.parametrize("part", range(2))
def test_what_is_out_outlives_power_cuts(part: int, scale: int, checked: Counter[str], repeatable: None) -> None:
    """Work, crash, continue, crash; between any two steps check what a crash would leave."""
    for round_number in range(scale):
        seed = 9100 + part + 2 * round_number
        print(f"seed {seed}")
        random.seed(seed)
        chance, disk, clock, ledger = Random(seed), CrashDisk(), Clock(), Ledger()
        for life in range(LIVES):
            disk = one_life(seed, life, disk, clock, ledger, chance, checked)
