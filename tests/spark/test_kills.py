"""kill -9 on drivers and workers at random moments of a rebuild: in the end the files are those of the log, exactly.

Three kills here; `make cluster` makes a hundred (ORBITLOG_KILLS). The seed is printed, and ORBITLOG_SEED repeats it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from orbitlog.doctor.rebuild_publish import STAGING
from tests.spark.conftest import ORBITLOG, environment
from tests.spark.generated import derived_files, write_store

KILLS = int(os.environ.get("ORBITLOG_KILLS", "3"))
SEED = int(os.environ.get("ORBITLOG_SEED", str(random.SystemRandom().randrange(1 << 32))))
_JOB_S = 4.0


def test_a_rebuild_that_is_killed_again_and_again(tmp_path: Path) -> None:
    print(f"ORBITLOG_SEED={SEED}")
    chance = random.Random(SEED)
    root = write_store(tmp_path / "store", messages=4000, seed=SEED)
    expected = derived_files(root)
    kills = finished = resumed = 0
    while kills < KILLS:
        spoil(root, chance)
        job = start(root)
        try:
            if wait_for_work(job, root):
                time.sleep(chance.random() * _JOB_S)
                kills += kill_something(job, chance)
            job.wait(timeout=chance.choice((0.5, 300)))
        except subprocess.TimeoutExpired:
            end(job)
        if job.returncode == 0:
            finished += 1
            assert derived_files(root) == expected, f"ORBITLOG_SEED={SEED}, {kills} kills"
        elif (root / STAGING / "plan.json").exists():
            resumed += 1
    job = start(root)
    assert job.wait(timeout=300) == 0
    assert derived_files(root) == expected, f"ORBITLOG_SEED={SEED}, {kills} kills"
    assert not (root / STAGING).exists()
    print(f"{kills} kills, {finished} runs ended by themselves, {resumed} left something to take up")


def spoil(root: Path, chance: random.Random) -> None:
    """Give the next run something to replace; a run that was stopped has its own work to go on with."""
    queue_files = sorted(path for path in (root / "consumequeue").rglob("*") if path.is_file())
    if queue_files and not (root / STAGING).exists():
        chance.choice(queue_files).write_bytes(b"not what it was")


def start(root: Path) -> subprocess.Popen[bytes]:
    command = [*ORBITLOG, "pipeline", "rebuild", str(root), "--in-place", "--master", "local[2]"]
    command += ["--split-bytes", "65536"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment(), stdout=quiet, stderr=quiet, start_new_session=True)


def wait_for_work(job: subprocess.Popen[bytes], root: Path) -> bool:
    """Wait until the job has begun, or ended."""
    began = (root / STAGING / "plan.json").exists()
    staged = root / STAGING / "splits"
    seen = len(list(staged.iterdir())) if staged.exists() else 0
    while job.poll() is None:
        if staged.exists() and (not began or len(list(staged.iterdir())) != seen or workers_of(job)):
            return True
        time.sleep(0.05)
    return False


def kill_something(job: subprocess.Popen[bytes], chance: random.Random) -> int:
    """Kill the driver with all its children, or one Python worker of it."""
    workers = workers_of(job)
    if workers and chance.random() < 0.4:
        try:
            os.kill(chance.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            return 0
        return 1
    return end(job)


def end(job: subprocess.Popen[bytes]) -> int:
    if job.poll() is not None:
        return 0
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    return 1


def workers_of(job: subprocess.Popen[bytes]) -> list[int]:
    """Find the Python workers of a driver: they share its process group."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                words = (process / "cmdline").read_bytes()
                if b"pyspark.daemon" in words and os.getpgid(int(process.name)) == job.pid:
                    found.append(int(process.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


@pytest.fixture(autouse=True)
def only_where_processes_can_be_seen() -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("workers are found below /proc")
