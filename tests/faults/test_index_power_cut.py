"""The index after a crash: keys that are known to be on the disk stay, and the log is not read for them again."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.store_state import KEYS_UNKNOWN, STATE_FILE, decode_state
from orbitlog.store.derived.index_files import IndexBoundary
from orbitlog.store.dispatch.dispatcher import Dispatcher
from orbitlog.testing.crash_disk import CrashDisk, PowerCut
from tests.faults.power_cuts import IMAGES, ROUNDS, check_image, watch
from tests.support.workloads import ROOT, Workload


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where recoveries begin to derive."""
    seen: list[int] = []

    def start(dispatcher: Dispatcher, dispatched_to: int, index_from: IndexBoundary) -> None:
        seen.append(dispatched_to)
        ordinary(dispatcher, dispatched_to, index_from)

    ordinary = Dispatcher.start
    monkeypatch.setattr(Dispatcher, "start", start)
    return seen


def run(seed: int) -> tuple[Workload, CrashDisk]:
    workload, disk = Workload(seed, sync_flush=False), CrashDisk()
    workload.open(disk)
    workload.run(ROUNDS)
    return workload, disk


@pytest.mark.parametrize("seed", range(3000, 3006))
def test_what_is_known_to_be_on_the_disk_is_not_derived_again(seed: int, starts: list[int]) -> None:
    workload, disk = run(seed)
    assert workload.store is not None
    workload.store.dispatch_once()
    workload.store.flush_derived()
    known_to = workload.store.dispatched_to
    workload.append(3)
    workload.store.dispatch_once()
    starts.clear()
    image = disk.crash(seed)
    check_image(workload, image, seed, f"workload seed {seed}")
    assert starts[0] == known_to


@pytest.mark.parametrize("part", range(4))
def test_power_cut_while_an_index_that_went_away_is_made_again(part: int, scale: int, checked: Counter[str]) -> None:
    """The state speaks of the files that are gone; half of their successors must not be taken for them."""
    for seed in range(3100 + part, 3100 + part + 4 * scale, 4):
        print(f"workload seed {seed}")
        workload, disk = run(seed)
        workload.promised_to()
        workload.store = None
        found = without_index(disk)
        watch(workload, found, Random(seed), lambda: checked.update([IMAGES]), every=3)
        store = workload.open(found)
        found.on_step = None
        store.close()
        check_image(workload, found.crash(seed), seed, f"workload seed {seed}, closed")


def without_index(disk: CrashDisk) -> CrashDisk:
    found = disk.kill()
    for path in list(found.files()):
        if tree.INDEX in path.parts:
            found.remove_file(path)
    found.sync_directory(ROOT / tree.INDEX)
    return found


def test_the_state_vouches_for_no_key_while_they_are_put_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever reaches the disk of a half-made file: sectors that are not there may look like sound ones."""

    def cut(*_: object) -> None:
        raise PowerCut

    workload, disk = run(3300)
    found = without_index(disk)
    known = decode_state(found.files()[ROOT / STATE_FILE])
    assert known.key_count > 0
    monkeypatch.setattr(Dispatcher, "catch_up", cut)
    with pytest.raises(PowerCut):
        workload.open(found)
    assert decode_state(found.crash(1).files()[ROOT / STATE_FILE]) == replace(known, key_count=KEYS_UNKNOWN)


def test_entries_that_cannot_be_those_of_a_log_are_not_kept(starts: list[int]) -> None:
    """Files of another store that were copied there: the log decides."""
    workload, disk = run(3200)
    assert workload.store is not None
    workload.store.dispatch_once()
    workload.store.flush_derived()
    files = disk.kill().files()
    path = max(path for path in files if tree.INDEX in path.parts)
    layout = workload.config.geometry.index_layout
    content = bytearray(files[path])
    first, second = (slice(layout.entry_position(n), layout.entry_position(n + 1)) for n in (1, 3))
    content[first], content[second] = content[second], content[first]
    starts.clear()
    check_image(workload, CrashDisk.of_files({**files, path: bytes(content)}), 0, "two entries swapped")
    assert starts[0] < workload.store.dispatched_to
