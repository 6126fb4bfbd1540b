"""The power is cut at steps of a conversion: the target is complete or absent, and a second run completes it.

Some steps in every run of the tests, more of them in `make faults`.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from orbitlog.doctor.convert.store_convert import convert_store
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.testing.golden import GoldenStore
from tests.support.mirrored_disk import MirroredDisk, write_image
from tests.support.repaired_stores import fingerprint

IMAGES = 6
"""For each run of the suite."""
NOTHING = StoreSettings()


@pytest.fixture(autouse=True)
def no_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real syncs take most of the time, and only those of the mirror count."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def images_of(source: Path, target: Path, chosen: set[int]) -> tuple[list[CrashDisk], int]:
    """Convert a store; return what the disk could have been at the chosen steps and at the end, and the step count."""
    target.mkdir()
    disk = MirroredDisk(target)
    images: list[CrashDisk] = []

    def note() -> None:
        if disk.mirror.steps in chosen:
            images.append(disk.mirror.crash(disk.mirror.steps))

    disk.mirror.on_step = note
    convert_store(source, target / "converted", NOTHING, disk=disk)
    images.append(disk.mirror.crash(disk.mirror.steps))
    return images, disk.mirror.steps


@pytest.mark.slow
def test_power_cut_leaves_a_conversion_that_a_second_run_completes(
    golden_497_dledger: GoldenStore, tmp_path: Path, scale: int, checked: Counter[str]
) -> None:
    source = golden_497_dledger.store
    _, steps = images_of(source, tmp_path / "whole", set())
    outcome = fingerprint(tmp_path / "whole" / "converted")
    chosen = set(random.Random(11).sample(range(steps), min(steps, IMAGES * scale)))
    images, _ = images_of(source, tmp_path / "images", chosen)
    for number, image in enumerate(images):
        where = f"image {number} of {len(images)}, {steps} steps"
        found = tmp_path / "found"
        write_image(image, tmp_path / "images", found)
        converted = found / "converted"
        is_published = converted.exists()
        assert is_published or number < len(images) - 1, "a conversion that returned was lost"
        if not is_published:
            convert_store(source, converted, NOTHING)
        assert fingerprint(converted) == outcome, f"{where}: published {is_published}"
        # The origin may outlive the cut, once it is of no use.
        left = {path.name for path in found.iterdir()} - {"converted"}
        assert left <= ({"converted.converting.json"} if is_published else set()), where
        shutil.rmtree(found)
        checked["power cuts of a conversion"] += 1
