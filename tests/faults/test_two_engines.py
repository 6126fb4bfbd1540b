"""Dispatch goes back and forth between the broker and an engine outside, which is killed at any moment.

Whoever dispatched what, queues and index are byte for byte what one engine makes of the log, every message arrives
once, and power cuts at any step of it are recovered from like any other.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from orbitlog.errors import DiskFull, LeaseLost
from orbitlog.formats import store_tree as tree
from orbitlog.store.derived.derived_range import DerivedRange, derive_range, pack_columns, unpack_columns
from orbitlog.store.dispatch.arrival import Arrival
from orbitlog.store.dispatch.external_dispatch import ExternalDispatch
from orbitlog.store.message_store import MessageStore
from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.faults.power_cuts import IMAGES, KILLED, check_image, watch
from tests.support.invariants import check_derived, check_goes_on, messages_in, reopen
from tests.support.workloads import ROOT, Workload

ENGINES = "engines killed while they dispatched"
FULL = "disks that were full for an engine outside"
ROUNDS = 120


class TwoEngines:
    """A workload whose dispatch is handed over, taken, killed, handed back and taken back at random."""

    def __init__(self, seed: int, disk: CrashDisk, *, sync_flush: bool, checked: Counter[str]) -> None:
        self.chance = Random(seed)
        self.workload = Workload(seed, sync_flush=sync_flush)
        self.disk = disk
        self.outside: ExternalDispatch | None = None
        self.arrived: list[Arrival] = []
        self.checked = checked
        self.workload.open(disk)

    @property
    def store(self) -> MessageStore:
        assert self.workload.store is not None
        return self.workload.store

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.one_step()

    def one_step(self) -> None:
        chance, store = self.chance, self.store
        kind = chance.choices(
            ["append", "broker", "outside", "log", "derived", "over", "back", "take", "give", "kill", "full"],
            [9, 3, 6, 2, 1, 3, 0.4, 5, 0.5, 3, 2],
        )[0]
        if kind == "append":
            self.workload.append(chance.randint(1, 3))
        elif kind == "broker":
            self.arrived += store.dispatch_once(chance.choice([300, 2000, 1 << 20]))
        elif kind == "log":
            store.flush_log()
        elif kind == "derived":
            store.flush_derived()
        elif kind == "over":
            store.hand_over_dispatch()
        elif kind == "back":
            store.take_back_dispatch()
        else:
            self.step_outside(kind)
        self.workload.promised_to()

    def step_outside(self, kind: str) -> None:
        if kind == "take" and self.outside is None:
            self.take()
        elif self.outside is None:
            return
        elif kind == "give" or not self.outside.is_wanted:
            self.outside.hand_back()
            self.outside = None
        elif kind == "kill":
            self.kill()
        elif kind == "full":
            self.fill_disk()
        elif kind == "outside":
            self.dispatch_outside()

    def take(self) -> None:
        try:
            self.outside = ExternalDispatch.take(ROOT, "test", self.disk)
        except LeaseLost:
            assert self.store.is_dispatch_inline or self.store._dispatch._is_recalled

    def dispatch_outside(self) -> None:
        assert self.outside is not None
        if self.chance.random() < 0.5:
            self.outside.dispatch_once(self.chance.choice([300, 2000, 1 << 20]))
        else:
            self.outside.put_ranges(self.derive())

    def derive(self) -> list[DerivedRange]:
        """Work out what is confirmed as tasks do: in ranges that begin and end at records, through bytes."""
        assert self.outside is not None
        start, limit = self.outside.dispatched_to, self.outside.confirmed_to
        segment_bytes = self.workload.config.geometry.segment_bytes
        ranges: list[DerivedRange] = []
        while start < limit:
            base = start - start % segment_bytes
            stop = min(base + segment_bytes, limit)
            content = self.disk.read_file(ROOT / tree.COMMITLOG / tree.offset_file_name(base))
            derived = derive_range(memoryview(content or b""), base, start, stop, self.workload.config.rules)
            columns = derived.columns
            packed = pack_columns(columns)
            again = unpack_columns(packed, len(columns.physical_offset), len(columns.key_hashes))
            ranges.append(DerivedRange(start, stop, derived.derived_to, derived.queues, again))
            start = stop
        return ranges

    def fill_disk(self) -> None:
        """Let the engine outside find no room at any one of its steps, and all the room the next time."""
        assert self.outside is not None
        self.disk.full_from = self.disk.steps + self.chance.randint(0, 10)
        try:
            self.dispatch_outside()
        except DiskFull:
            self.checked.update([FULL])
        self.disk.full_from = None

    def kill(self) -> None:
        """Let the engine outside die between any two of its steps; the disk and the broker live on."""
        assert self.outside is not None
        self.disk.cut_at = self.disk.steps + self.chance.randint(0, 25)
        try:
            self.dispatch_outside()
        except PowerCut:
            self.checked.update([ENGINES])
        self.disk.cut_at = None
        self.outside.abandon()
        self.outside = None
        if self.chance.random() < 0.4:
            assert self.store.take_back_dispatch(), "nobody holds it"

    def close(self) -> None:
        if self.outside is not None:
            end = self.outside.hand_back if self.chance.random() < 0.5 else self.outside.abandon
            end()
        while not self.store.take_back_dispatch():
            pass
        while self.store.dispatched_to < self.store.confirmed_to:
            self.arrived += self.store.dispatch_once()
        self.arrived += self.store.dispatch_once()
        self.store.close()

    def check(self) -> None:
        check_derived(self.disk, self.workload.config)
        expected = [
            (message.topic, message.queue_id, message.queue_offset)
            for message in messages_in(self.disk.files(), self.arrived_before)
            if message.transaction_type.enters_queue
        ]
        assert [(one.topic, one.queue_id, one.queue_offset) for one in self.arrived] == expected
        reopen(self.disk, self.workload.config).close()
        check_goes_on(self.disk, self.workload.config)

    @property
    def arrived_before(self) -> int | None:
        """With sync flush the close itself dispatches what it has just flushed, and no client waits for that."""
        return None if not self.workload.config.sync_flush else self._confirmed_at_close

    _confirmed_at_close = 0


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(4))
def test_two_engines_give_the_bytes_of_one(part: int, sync_flush: bool, scale: int, checked: Counter[str]) -> None:
    for run in range(3 * scale):
        seed = 5000 + part + 4 * run
        print(f"seed {seed}")
        engines = TwoEngines(seed, CrashDisk(), sync_flush=sync_flush, checked=checked)
        engines.run(ROUNDS)
        engines.store.flush_log()
        engines._confirmed_at_close = engines.store.confirmed_to
        engines.close()
        engines.check()


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(3))
def test_power_cut_with_two_engines(part: int, sync_flush: bool, scale: int, checked: Counter[str]) -> None:
    for run in range(scale):
        seed = 6000 + part + 3 * run
        print(f"seed {seed}")
        disk = CrashDisk()
        engines = TwoEngines(seed, disk, sync_flush=sync_flush, checked=checked)
        watch(engines.workload, disk, Random(seed), lambda: checked.update([IMAGES]), every=25)
        engines.run(ROUNDS)
        engines.close()
        disk.on_step = None


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
def test_killed_with_two_engines(sync_flush: bool, scale: int, checked: Counter[str]) -> None:
    """Broker and engine die at once, and the machine lives: whatever was taken is there."""
    for seed in range(7000, 7000 + 2 * scale):
        print(f"seed {seed}")
        disk = CrashDisk()
        engines = TwoEngines(seed, disk, sync_flush=sync_flush, checked=checked)
        for _ in range(20):
            engines.run(8)
            ledger = engines.workload.ledger.copy()
            ledger.durable_to = engines.store.written_to
            check_image(engines.workload, disk.kill(), 0, f"killed at step {disk.steps}", ledger)
            checked.update([KILLED])
