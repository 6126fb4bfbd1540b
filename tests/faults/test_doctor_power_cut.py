"""The power is cut at every step of a repair, of an undo and of a rebuild in place.

Whatever the disk kept, the store is the old one or the new one, or the next run finishes or undoes the work: the bytes
are then those that a run without a power cut leaves, or those from before it. Some steps in every run of the tests; all
of them, with several images each, in `make faults`.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.doctor.repair.repair_journal import finish_interrupted, interrupted, undo_last
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.formats.compat import COMPAT_5_5
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.store_tree import DOCTOR
from orbitlog.formats.tables.topic_config import TOPICS, TopicConfig, TopicTable
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.testing.sample_messages import sample_messages
from tests.support.damage_zoo import ZOO
from tests.support.mirrored_disk import MirroredDisk, write_image
from tests.support.repaired_stores import fingerprint

IMAGES = 8
"""For each case, in the suite."""


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real syncs take most of the time, and only those of the mirror count."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of about 200 messages in some segments, closed."""
    root = tmp_path_factory.mktemp("small") / "store"
    geometry = StoreGeometry(8 * 1024, 1220, index_layout=IndexLayout(37, 105))
    clock = count(1_790_000_000_000, 5)
    with MessageStore.open(root, StoreConfig(geometry), lambda: next(clock)) as store:
        topics = {message.topic: store.append(message) for message in list(sample_messages(1_790_000_000_000))[:200]}
    table = TopicTable({topic: TopicConfig(topic) for topic in topics})
    (root / "config").mkdir()
    (root / "config" / TOPICS.name).write_text(TOPICS.encode(table, COMPAT_5_5))
    return root


def files(root: Path) -> dict[str, str]:
    """Every file of the store, without those that the doctor keeps for itself."""
    return {name: found for name, found in fingerprint(root).items() if not name.startswith((DOCTOR, ".orbitlog-reb"))}


def repair(root: Path, disk: Disk | None) -> None:
    assert apply_repair(root, accept_lost_segments=True, disk=disk).is_sound


def rebuild(root: Path, disk: Disk | None) -> None:
    assert rebuild_in_place(root, RebuildWish(), StoreSettings(), disk=disk).is_published


def undo(root: Path, disk: Disk | None) -> None:
    undo_last(root, force=True, disk=disk)


@dataclass(frozen=True)
class Case:
    """What is done to a damaged store; `undo` is done to a repaired one."""

    work: Callable[[Path, Disk | None], None]
    damage: str


CASES = {
    "repair of the log and all that is derived": Case(repair, "noise_in_log_queue_and_index"),
    "repair of a missing segment": Case(repair, "missing_middle_segment"),
    "repair of swapped segments": Case(repair, "swapped_segments"),
    "undo of writes and swaps": Case(undo, "noise_in_log_queue_and_index"),
    "undo of a new segment": Case(undo, "missing_middle_segment"),
    "rebuild in place": Case(rebuild, "deleted_consumequeue"),
}


def images_of(case: Case, before: Path, scratch: Path, wanted: Callable[[int], bool]) -> tuple[Path, list[CrashDisk]]:
    """Do the work once; returns where, and what the disk could have been at the wanted steps of it."""
    root = scratch / "store"
    shutil.copytree(before, root, symlinks=True)
    disk = MirroredDisk(root)
    images: list[CrashDisk] = []

    def note() -> None:
        if wanted(disk.mirror.steps):
            images.append(disk.mirror.crash(disk.mirror.steps))

    disk.mirror.on_step = note
    case.work(root, disk)
    images.append(disk.mirror.crash(disk.mirror.steps))
    return root, images


def continued(case: Case, root: Path) -> None:
    """Do what an operator does after a power cut: run the same command."""
    if case.work is not undo:
        case.work(root, None)
        return
    finish_interrupted(root)
    if any((root / DOCTOR).glob("*/journal.json")):
        undo(root, None)


@pytest.mark.parametrize("name", CASES)
def test_power_cut_leaves_a_store_that_is_finished_or_undone(
    name: str, small_store: Path, tmp_path: Path, scale: int, checked: Counter[str]
) -> None:
    case = CASES[name]
    damaged = tmp_path / "damaged"
    shutil.copytree(small_store, damaged)
    ZOO[case.damage][0](damaged)
    before, original = damaged, files(damaged)
    if case.work is undo:
        before = tmp_path / "repaired"
        shutil.copytree(damaged, before)
        repair(before, None)
    (tmp_path / "count").mkdir()
    done, _ = images_of(case, before, tmp_path / "count", lambda _: False)
    outcome, steps = files(done), _steps(case, before, tmp_path / "steps")
    chance = random.Random(name)
    chosen = set(chance.sample(range(steps), min(steps, IMAGES * scale)))
    (tmp_path / "images").mkdir()
    root, images = images_of(case, before, tmp_path / "images", lambda step: step in chosen)
    for number, image in enumerate(images):
        where = f"{name}: image {number} of {len(images)}, {steps} steps"
        # Undo is cheap and asked of every image; half of them are continued as well.
        if case.work is not undo:
            found = tmp_path / "undone"
            write_image(image, root, found)
            undo_all(found)
            assert files(found) == original, f"{where}: an undo does not restore the store"
            shutil.rmtree(found)
        if case.work is undo or number % 2 == 0:
            found = tmp_path / "continued"
            write_image(image, root, found)
            continued(case, found)
            assert files(found) == outcome, f"{where}: continued, it is another store"
            assert interrupted(found) == [], where
            shutil.rmtree(found)
        checked["doctor's power cuts"] += 1


def undo_all(root: Path) -> None:
    while any((root / DOCTOR).glob("*/journal.json")):
        undo(root, None)


def _steps(case: Case, before: Path, scratch: Path) -> int:
    scratch.mkdir()
    numbers: list[int] = []
    images_of(case, before, scratch, lambda step: bool(numbers.append(step)))
    return max(numbers)
