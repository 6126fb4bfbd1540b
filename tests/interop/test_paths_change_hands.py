"""A CommitLog in several directories, served in turn by Orbitlog and by Apache's broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from orbitlog.jobs.check.store_check import check_with
from orbitlog.jobs.local_runner import run_here
from orbitlog.settings.store_settings import load_settings
from tests.interop.handover import LINES, SMALL, consumed, ids
from tests.interop.harness.clients import Client
from tests.interop.harness.drivers import Driver
from tests.interop.harness.packages import ApachePackages
from tests.interop.harness.systems import ApacheSystem, OrbitlogSystem, System

pytestmark = pytest.mark.interop

SEGMENT_BYTES = 256 * 1024
BODY = Random(7).randbytes(10_000).hex()  # clients compress long bodies: this one stays long
COUNT = 40


class Traveller:
    """One topic and one group that follow a store from broker to broker."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._topic = self._group = ""
        self._pending: set[str] = set()

    def turn(self, system: System) -> None:
        """Start the broker, consume what the last one left, and leave messages of several segments for the next."""
        system.start()
        client = Client(self._driver, system)
        try:
            if not self._topic:
                self._topic, self._group = client.topic("Spread"), client.group("spread")
                consumed(client, self._topic, self._group, 0)
            else:
                assert consumed(client, self._topic, self._group, len(self._pending)) == self._pending
            producer = client.producer()
            self._pending = ids(client.send(producer, self._topic, count=COUNT, body=f"{BODY} {{}}"))
            assert len(self._pending) == COUNT
        finally:
            client.close()
            system.stop()


def bases_in(directory: Path) -> set[int]:
    return {int(path.name) for path in directory.iterdir()}


def check_places(directories: Iterable[Path], *, first: int = 0) -> None:
    """Assert that every segment from `first` on is in the directory of its number modulo the sorted directories."""
    ordered = sorted(directories, key=str)
    for number, directory in enumerate(ordered):
        for base in bases_in(directory):
            assert base < first or base // SEGMENT_BYTES % len(ordered) == number, (directory, base)


def orbitlog(*words: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("orbitlog")), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("version", LINES)
def test_a_log_in_two_directories_goes_from_one_broker_to_the_other_and_back(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    store, disk_a, disk_b = tmp_path / "store", tmp_path / "disk-a" / "log", tmp_path / "disk-b" / "log"
    unread = {
        "storePathConsumeQueue": tmp_path / "unread" / "queues",
        "storePathIndex": tmp_path / "unread" / "index",
        "storeCheckpoint": tmp_path / "unread" / "checkpoint",
        "abortFile": tmp_path / "unread" / "abort",
    }
    settings = {
        **SMALL,
        **unread,
        "mappedFileSizeCommitLog": SEGMENT_BYTES,
        "storePathCommitLog": f"{disk_b},{disk_a}",
    }
    ours = OrbitlogSystem(tmp_path / "ours", store, {**settings, "compat": LINES[version]})
    theirs = ApacheSystem(packages_of(version), tmp_path / "theirs", store, settings)
    traveller = Traveller(driver_of(f"java-{version}"))
    try:
        for system in (theirs, ours, theirs, ours, theirs):
            before = max((*bases_in(disk_a), *bases_in(disk_b))) if disk_a.exists() else -1
            traveller.turn(system)
            assert max((*bases_in(disk_a), *bases_in(disk_b))) > before
            check_places((disk_a, disk_b))
            assert not (store / "commitlog").exists()
            # None of these four is a setting of either broker: the files are below the root.
            assert not (tmp_path / "unread").exists()
            assert (store / "consumequeue").is_dir() and (store / "checkpoint").is_file()
    finally:
        ours.kill()
        theirs.kill()
    paths = f"storePathCommitLog={disk_a},{disk_b}"
    (checked,) = check_with(run_here, [store], settings=load_settings(None, [paths]), split_bytes=1 << 20)
    assert not checked.findings and checked.messages >= 5 * COUNT
    dumped = orbitlog("dump", "commitlog", store, "--set", paths, "--json")
    assert dumped.returncode == 0, dumped.stderr
    assert sum('"Spread' in line for line in dumped.stdout.splitlines()) == 5 * COUNT
    refused = orbitlog("dump", "commitlog", store)
    assert refused.returncode != 0 and "storePathCommitLog" in refused.stderr


@pytest.mark.parametrize("version", LINES)
def test_read_only_directories_stay_part_of_the_log_and_get_no_new_segment(
    version: str, tmp_path: Path, packages_of: Callable[[str], ApachePackages], driver_of: Callable[[str], Driver]
) -> None:
    store, full, free = tmp_path / "store", tmp_path / "full", tmp_path / "free"
    small = {**SMALL, "mappedFileSizeCommitLog": SEGMENT_BYTES}
    alone = {**small, "storePathCommitLog": full}
    # The comma at the end is what makes Java read the other setting.
    both = {**small, "storePathCommitLog": f"{free},", "readOnlyCommitLogStorePaths": full}
    packages, line = packages_of(version), {"compat": LINES[version]}
    traveller = Traveller(driver_of(f"java-{version}"))
    systems: list[System] = [ApacheSystem(packages, tmp_path / "first", store, alone)]
    try:
        traveller.turn(systems[0])
        kept = bases_in(full)
        for system in (
            OrbitlogSystem(tmp_path / "ours", store, {**both, **line}),
            ApacheSystem(packages, tmp_path / "theirs", store, both),
            OrbitlogSystem(tmp_path / "ours-too", store, {**both, **line}),
        ):
            systems.append(system)
            before = bases_in(free) if free.exists() else set()
            traveller.turn(system)
            assert bases_in(full) <= kept  # a prepared segment that was never used may be removed at a stop
            assert bases_in(free) > before
    finally:
        for system in systems:
            system.kill()
