"""The power goes while a slave copies a log: what is left is a prefix of the master's log, and copying continues."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from orbitlog.formats import store_tree as tree
from orbitlog.formats.records.message_scan import encode_blank
from orbitlog.store.message_store import MessageStore
from orbitlog.testing.crash_disk import CrashDisk
from tests.faults.power_cuts import IMAGES, KILLED
from tests.support.invariants import check_derived, reopen
from tests.support.workloads import ROOT, Workload

MESSAGES = 90
PIECES = [1, 40, 300, 1000, 1 << 16]


class Pair:
    """A master with a log, and the disk of a slave that copies it in random steps."""

    def __init__(self, seed: int, *, sync_flush: bool) -> None:
        self.chance = Random(seed)
        self.master_disk = CrashDisk()
        workload = Workload(seed, sync_flush=False)
        self.master = workload.open(self.master_disk)
        while workload.sent < MESSAGES:
            workload.append(1)
        self.master.flush_log()
        self.config = replace(workload.config, sync_flush=sync_flush, is_replica=True)
        self.disk = CrashDisk()
        self.slave: MessageStore | None = None

    def open(self) -> MessageStore:
        self.slave = reopen(self.disk, self.config)
        return self.slave

    @property
    def is_done(self) -> bool:
        return self.slave is not None and self.slave.received_to == self.master.written_to

    def step(self) -> None:
        store, chance = self.slave, self.chance
        assert store is not None
        kind = chance.choices(["copy", "dispatch", "log", "derived"], [9, 4, 2, 0.7])[0]
        if kind == "copy" and not self.is_done:
            copy(self.master, store, chance.choice(PIECES))
        elif kind == "dispatch":
            store.dispatch_once(chance.choice([300, 2000, 1 << 20]))
        elif kind == "log":
            store.flush_log()
        else:
            store.flush_derived()


def copy(master: MessageStore, slave: MessageStore, bytes_max: int) -> None:
    bytes_max = min(bytes_max, master.written_to - slave.received_to)
    slave.append_replicated(slave.received_to, master.read_log(slave.received_to, bytes_max))


def log_of(disk: CrashDisk) -> dict[Path, bytes]:
    return {path: content for path, content in disk.files().items() if path.parent.name == tree.COMMITLOG}


def check_copy(pair: Pair, image: CrashDisk, flushed_to: int) -> None:
    """Open an image: it has at least the flushed log, whole records of the master, and zeros after them."""
    store = reopen(image, pair.config)
    end, masters = store.written_to, log_of(pair.master_disk)
    assert not store.damage, store.damage
    assert end <= pair.master.written_to
    # A log that ends with a segment may be recovered to its BLANK, as in Java: no message is lost.
    assert flushed_to <= end or pair.master.read_log(end, 8) == encode_blank(flushed_to - end)
    assert store.received_to == end
    for path, content in log_of(image).items():
        base = int(path.name)
        kept = max(0, min(end - base, len(content)))
        assert content[:kept] == masters[path][:kept], f"{path.name} differs from the master's before {end}"
        assert not content[kept:].strip(b"\0"), f"{path.name} has bytes after the end of the log at {end}"
    while store.received_to < pair.master.written_to:
        copy(pair.master, store, 1 << 16)
    store.close()
    check_derived(image, pair.config)
    for path, content in log_of(image).items():
        assert content == masters[path]


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(2))
def test_power_cut_at_any_step_of_a_slave_leaves_a_prefix_of_the_masters_log(
    sync_flush: bool, part: int, scale: int, checked: Counter[str]
) -> None:
    for run in range(scale):
        seed = part + 2 * run
        print(f"seed {seed}")
        pair, chance = Pair(seed, sync_flush=sync_flush), Random(seed)

        def look(pair: Pair = pair, chance: Random = chance) -> None:
            if chance.randrange(12) == 0:
                flushed_to = pair.slave.flushed_to if pair.slave is not None else 0
                check_copy(pair, pair.disk.crash(chance.randrange(1 << 30)), flushed_to)
                checked.update([IMAGES])

        pair.disk.on_step = look
        pair.open()
        while not pair.is_done:
            pair.step()
        assert pair.slave is not None
        pair.slave.close()
        assert (ROOT / tree.COMMITLOG / tree.offset_file_name(0)) in pair.disk.files()


def test_slave_killed_at_any_step_keeps_every_complete_record(scale: int, checked: Counter[str]) -> None:
    pair = Pair(7, sync_flush=False)
    slave = pair.open()
    while not pair.is_done:
        pair.step()
        if pair.chance.randrange(8 // min(scale, 8)) == 0:
            check_copy(pair, pair.disk.kill(), slave.written_to)
            checked.update([KILLED])
