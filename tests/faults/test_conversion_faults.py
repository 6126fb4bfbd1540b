"""A conversion that is killed or loses its power at any step: the next run ends it with the same bytes.

Until everything is durable, the new store does not have its name; the source is never written to. Some steps in every
run of the tests, all of them with several images each in `make faults`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.doctor.convert.store_convert import convert_store
from orbitlog.doctor.examination import examine
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.disk import RealDisk
from orbitlog.testing.crash_disk import CrashDisk
from orbitlog.testing.golden import GoldenStore
from tests.support.cli_run import Run
from tests.support.cli_run import run as run
from tests.support.mirrored_disk import MirroredDisk, write_image
from tests.support.repaired_stores import fingerprint
from tests.support.store_kinds import make_dledger_store

KILLS, IMAGES = 3, 12
OUT = "converted"


def convert_here(root: Path, call: int | None = None) -> int | None:
    """Convert in a process of its own; return its number of calls, None if it was killed at the one that was named."""
    words = [sys.executable, "-m", "tests.faults.doctor_process", "convert", str(root)]
    done = subprocess.run([*words, *([] if call is None else [str(call)])], capture_output=True, text=True, check=False)
    if call is not None and done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_conversion_killed_at_any_call_is_continued_to_the_same_store(
    golden_497_dledger: GoldenStore, tmp_path: Path, scale: int, checked: Counter[str]
) -> None:
    seed = int(os.environ.get("ORBITLOG_SEED", "1" if scale == 1 else str(random.randrange(1 << 30))))
    print(f"ORBITLOG_SEED={seed}")
    chance = random.Random(seed)
    root = golden_497_dledger.copy_to(tmp_path / "source").store
    out = root.with_name(OUT)
    calls = convert_here(root)
    assert calls is not None
    source, outcome = fingerprint(root), fingerprint(out)
    for _ in range(KILLS * scale):
        shutil.rmtree(out)
        call = chance.randrange(1, calls + 1)
        where = f"killed at call {call} of {calls}; ORBITLOG_SEED={seed}"
        while convert_here(root, call) is None and not out.exists() and chance.random() < 0.5:
            call = chance.randrange(1, calls + 1)  # killed a second time before it is continued
        if not out.exists():
            convert_here(root)
        assert fingerprint(out) == outcome, where
        assert fingerprint(root) == source, where
        assert not out.with_name(f"{OUT}.converting").exists(), where
        checked["conversions killed"] += 1


def images_of(source: Path, target: Path, chosen: set[int] | None) -> tuple[int, list[CrashDisk]]:
    """Convert once; return the number of steps, and what the disk could have been at the chosen ones."""
    target.mkdir()
    disk = MirroredDisk(target)
    images: list[CrashDisk] = []

    def note() -> None:
        if chosen is not None and disk.mirror.steps in chosen:
            images.append(disk.mirror.crash(disk.mirror.steps))

    disk.mirror.on_step = note
    convert_store(source, target / OUT, StoreSettings(), disk=disk)
    images.append(disk.mirror.crash(disk.mirror.steps))
    return disk.mirror.steps, images


@pytest.mark.slow
def test_power_cut_leaves_no_half_store_and_the_next_run_ends_the_conversion(
    golden_497_dledger: GoldenStore, tmp_path: Path, scale: int, checked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # only the syncs of the mirror count
    source = golden_497_dledger.store
    steps, _ = images_of(source, tmp_path / "whole", None)
    outcome = fingerprint(tmp_path / "whole" / OUT)
    assert examine(tmp_path / "whole" / OUT).is_sound
    chosen = set(random.Random(7).sample(range(steps), min(steps, IMAGES * scale)))
    target = tmp_path / "images"
    _, images = images_of(source, target, chosen)
    for number, image in enumerate(images):
        where = f"image {number} of {len(images)}, {steps} steps"
        found = tmp_path / "found"
        found.mkdir()
        write_image(image, target, found)
        if not (found / OUT).exists():
            convert_store(source, found / OUT, StoreSettings())
        assert fingerprint(found / OUT) == outcome, where
        shutil.rmtree(found)
        checked["power cuts of conversions"] += 1


# Entries of another kind in place of the working directory and of its origin


def make_file(path: Path) -> None:
    path.write_text("of the user")


def make_directory(path: Path) -> None:
    path.mkdir()
    (path / "notes").write_text("of the user")


IN_THE_WAY = (
    (".converting", make_file, "out.converting is not a directory: remove or rename it"),
    (".converting", os.mkfifo, "out.converting is not a directory: remove or rename it"),
    (".converting.json", make_file, "out.converting.json was not written by a conversion of this user"),
    (".converting.json", Path.mkdir, "out.converting.json was not written by a conversion of this user"),
    (".converting.json", make_directory, "out.converting.json was not written by a conversion of this user"),
    (".converting.json", os.mkfifo, "out.converting.json was not written by a conversion of this user"),
    (".converting.json.orbitlog-new", make_directory, "out.converting.json.orbitlog-new is a directory"),
)


@pytest.mark.parametrize(
    ("suffix", "make", "sentence"), IN_THE_WAY, ids=[f"{suffix} {make.__name__}" for suffix, make, _ in IN_THE_WAY]
)
def test_entry_in_place_of_the_working_directory_or_its_origin_is_kept_and_named(
    tmp_path: Path, run: Run, suffix: str, make: Callable[[Path], object], sentence: str
) -> None:
    root, out = tmp_path / "store", tmp_path / "out"
    make_dledger_store(root)
    entry = tmp_path / f"out{suffix}"
    make(entry)
    before = tree_of(tmp_path)
    refused = run("doctor", "convert", root, "--out", out)
    assert refused.exit_code == 1 and len(refused.sentences) == 1
    assert sentence in refused.stderr and refused.stderr.endswith(" and run the command again\n")
    assert tree_of(tmp_path) == before
    entry.rename(tmp_path / "elsewhere")
    assert run("doctor", "convert", root, "--out", out).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "out", "store"]


def test_origin_without_its_directory_is_signed_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed after it had signed leaves the origin alone."""
    root, out = tmp_path / "store", tmp_path / "out"
    make_dledger_store(root)

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RealDisk, "make_directory", die)
        with pytest.raises(Killed):
            convert_store(root, out, StoreSettings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.converting.json", "store"]
    assert convert_store(root, out, StoreSettings()).records == 60
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "store"]


def tree_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Return kind and content of every entry; a pipe is not opened."""
    return {
        str(path.relative_to(directory)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in directory.rglob("*")
    }
