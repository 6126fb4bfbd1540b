"""The power goes while POP check points are handed over and taken over: no message is lost, none that is done comes.

The parts of a broker as in `test_pop_power_cut`, with a timer: now and then what is out is handed over as at a clean
stop, and the next life, or the same, reads it from the revive log.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from random import Random

import pytest

from orbitlog.broker.pop.pop_consumption import PopConsumption
from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.faults.kept_aside import Clock
from tests.faults.pop_ledger import INVISIBLE_MS, LIVES, STEPS, Ledger, Out, Pops

IMAGES = "images of a disk while POP check points change hands"
SETTLE_MS = 3_000


class PopsWithTimer(Pops):
    """The same, and a timer that takes check points into the revive topic."""

    has_timer = True

    def make_pops(self) -> PopConsumption:
        return PopConsumption(self.state, self.writer, self.directory, self.client, self.timed.settled_to_ms)

    def revive(self) -> None:
        self.dispatch()
        for _ in range(4):  # delivered by the timer, dispatched, read and settled
            self.timed.step(self.clock.now_ms)
            self.dispatch()
            self.clock.now_ms += 500
            self.pops.tick(self.clock.now_ms)
            self.dispatch()

    def save(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_until_complete(self.saver.flush_log())  # an acknowledgement may be in the log alone
        loop.run_until_complete(self.saver.save_offsets())
        loop.run_until_complete(self.saver.save_delays())

    def hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do what a clean stop does."""
        self.pops.hand_over()
        loop.run_until_complete(self.saver.flush_log())
        self.dispatch()
        self.timed.take_all()
        self.save(loop)


def check_image(disk: CrashDisk, ledger: Ledger, durable_to: int, now_ms: int) -> None:
    """Open what a crash left, let time pass, pop everything, and hold it against the ledger."""
    pops = PopsWithTimer(disk, Clock(now_ms))
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
        pops.clock.now_ms += INVISIBLE_MS + SETTLE_MS
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
    """Let a broker work until the power goes, or it stops; returns the disk that the next one finds."""
    pops = PopsWithTimer(disk, clock)
    ledger.ends = {name: end for name, end in ledger.ends.items() if end <= pops.store.written_to}
    if ledger.is_saving:
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

    def save(loop: asyncio.AbstractEventLoop, *, hands_over: bool) -> None:
        done = set(ledger.standing)
        ledger.is_saving = True
        (pops.hand_over if hands_over else pops.save)(loop)
        ledger.is_saving, ledger.done_and_saved = False, done

    def one_step(number: int, loop: asyncio.AbstractEventLoop) -> None:
        kind = chance.randrange(12)
        if kind < 3:
            ledger.ends[f"{life}-{number}"] = pops.send(f"{life}-{number}")
        elif kind < 5:
            out.extend(pops.pop(chance.randint(1, 4)))
        elif kind < 7 and out:
            each = out.pop(chance.randrange(len(out)))
            if clock.now_ms < each.visible_ms:
                ledger.standing.add(each.place)
            if clock.now_ms < each.visible_ms + SETTLE_MS:
                # A checkpoint takes acknowledgements until it is settled: one that is late by less may still count.
                ledger.done.add(each.name)
            pops.acknowledge(each)
        elif kind == 7:
            clock.now_ms += chance.choice([1, 1_000, INVISIBLE_MS])
            pops.revive()
        elif kind < 10:
            save(loop, hands_over=kind == 9)
        else:
            chance.choice([pops.store.flush_log, pops.store.flush_derived, pops.dispatch])()

    disk.on_step = look
    disk.cut_at = disk.steps + chance.randrange(100, 500)
    with asyncio.Runner() as runner:
        try:
            for number in range(STEPS):
                one_step(number, runner.get_loop())
            save(runner.get_loop(), hands_over=True)
        except PowerCut:
            pass
    disk.on_step = None
    pops.close()
    return disk.kill() if chance.random() < 0.3 else disk.crash(chance.randrange(1 << 30))


@pytest.mark.parametrize("part", range(2))
def test_check_points_outlive_power_cuts(part: int, scale: int, checked: Counter[str], repeatable: None) -> None:
    """Work, hand over, crash, continue, crash; between any two steps check what a crash would leave."""
    for round_number in range(scale):
        seed = 9300 + part + 2 * round_number
        print(f"seed {seed}")
        random.seed(seed)
        chance, disk, clock, ledger = Random(seed), CrashDisk(), Clock(), Ledger()
        for life in range(LIVES):
            disk = one_life(seed, life, disk, clock, ledger, chance, checked)
