"""Flushing in a second thread, at any moment of appending and dispatching in the first, and the power goes."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from orbitlog.formats.derived.store_state import STATE_FILE, decode_state
from orbitlog.formats.records.message import make_message
from orbitlog.store.derived import queue_set
from orbitlog.store.message_store import MessageStore
from orbitlog.testing.crash_disk import CrashDisk
from tests.faults.power_cuts import IMAGES, KILLED, check_image, watch
from tests.faults.turns import TurnLock, Turns
from tests.support.invariants import check_recovered, messages_in
from tests.support.workloads import ROOT, Workload

ROUNDS = 50
FLUSHES = 25
UseKernels = Callable[[bool], None]


class AppendingWorkload(Workload):
    """The first thread's part: everything but flushing."""

    def one_step(self) -> None:
        store, chance = self.store, self.chance
        assert store is not None
        kind = chance.choices(["append", "batch", "dispatch", "prepare"], [9, 2, 6, 1])[0]
        if kind == "append":
            self.append(1)
        elif kind == "batch":
            self.append(chance.randint(2, 4))
        elif kind == "dispatch":
            store.dispatch_once(chance.choice([300, 2000, 1 << 20]))
        else:
            store.prepare_once()
        self.promised_to()


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
@pytest.mark.parametrize("part", range(2))
def test_power_cut_while_another_thread_flushes(
    sync_flush: bool,
    part: int,
    scale: int,
    checked: Counter[str],
    use_kernels: UseKernels,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kernels(part % 2 == 1)
    monkeypatch.setattr(queue_set, "_OPEN_QUEUES_MAX", 2)  # files are closed while the other thread may sync them
    for run in range(scale):
        seed = 6000 + part + 2 * run
        print(f"workload seed {seed}")
        in_two_threads(AppendingWorkload(seed, sync_flush=sync_flush), seed, checked)


def in_two_threads(workload: Workload, seed: int, checked: Counter[str]) -> None:
    disk, chance = CrashDisk(), Random(seed)
    store = workload.open(disk)
    turns = Turns(chance, 0.3)
    store._marks.lock = TurnLock(turns)  # type: ignore[assignment]
    watch(workload, disk, chance, lambda: checked.update([IMAGES]), every=25)
    look = disk.on_step
    assert look is not None

    def step() -> None:
        look()
        turns.may_change()

    disk.on_step = step
    turns.run(lambda: workload.run(ROUNDS), lambda: flush(store, chance, turns))
    disk.on_step = None
    everything = workload.ledger.copy()
    everything.durable_to = store.written_to
    check_image(workload, disk.kill(), seed, "killed at the end", everything)
    checked.update([KILLED])
    store.close()
    check_recovered(disk, workload.config, everything)


def flush(store: MessageStore, chance: Random, turns: Turns) -> None:
    """The second thread's part."""
    for _ in range(FLUSHES):
        if chance.random() < 0.5:
            store.flush_log()
        else:
            store.flush_derived()
        turns.change()


@pytest.mark.parametrize("written", [1, 5, 9, 14, 22])
def test_a_state_written_while_dispatching_counts_whole_steps(written: int) -> None:
    """Else no recovery would trust it, and after a kill the whole log would be gone through."""
    disk = CrashDisk()
    store = Workload(1, sync_flush=False).open(disk)
    flusher = threading.Thread(target=store.flush_derived)
    steps: list[str] = []

    def flush_amid() -> None:
        steps.append(disk.last_step)
        if sum(step.startswith(("write store/index", "edit store/index")) for step in steps) == written:
            if flusher.ident is None:
                flusher.start()
                flusher.join(0.1)  # in vain where it waits for the step to end, as it should

    for number in range(40):
        store.append(make_message("T", b"x" * 60, queue_id=number % 3, properties={"KEYS": f"a{number} b"}))
    disk.on_step = flush_amid
    store.dispatch_once()
    disk.on_step = None
    flusher.join()
    state = decode_state(disk.files()[ROOT / STATE_FILE])
    before = [message for message in messages_in(disk.files()) if message.physical_offset < state.dispatched_to]
    assert state.unit_count == len(before)
    store.close()


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Let threads change over as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("quick_switches")
def test_threads_that_take_no_turns(tmp_path: Path, scale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real disk, with more queues than may be open: no error in either thread, and all that was taken is there."""
    monkeypatch.setattr(queue_set, "_OPEN_QUEUES_MAX", 4)
    config = Workload(3, sync_flush=False).config
    store = MessageStore.open(tmp_path, config, lambda: 1_700_000_000_000)
    ended, errors = threading.Event(), []

    def flush_again_and_again() -> None:
        try:
            while not ended.is_set():
                store.flush_log()
                store.flush_derived()
        except Exception as error:  # noqa: BLE001 (raised by the other thread)
            errors.append(error)

    flusher = threading.Thread(target=flush_again_and_again)
    flusher.start()
    count = 300 * scale
    try:
        for number in range(count):
            assert store.append(make_message(f"T{number % 12}", b"%d" % number)).is_stored
            if number % 3 == 0:
                store.dispatch_once()
                store.prepare_once()
    finally:
        ended.set()
        flusher.join()
    assert not errors, errors
    store.close()
    with MessageStore.open(tmp_path, config, lambda: 1_700_000_000_000) as store:
        assert store.numbers().unit_count == count
        assert store.damage == []
