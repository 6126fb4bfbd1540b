"""A disk that fails a sync, and a disk that is full for a while: both are reported, and neither loses a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from orbitlog.errors import DiskFull, StoreError
from orbitlog.store.appending.put_result import PutStatus
from orbitlog.store.message_store import MessageStore
from orbitlog.testing.crash_disk import CrashDisk
from tests.support.invariants import check_derived, check_log, check_recovered
from tests.support.workloads import ROOT, Workload, random_message

FAILED = "failed syncs"
FILLED = "full disks"
UseKernels = Callable[[bool], None]


def steps_of(seed: int, *, sync_flush: bool, rounds: int) -> int:
    """Count the steps of a run without faults."""
    workload, disk = Workload(seed, sync_flush=sync_flush), CrashDisk()
    workload.open(disk)
    workload.run(rounds)
    return disk.steps


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
def test_failed_sync_is_reported_and_nothing_promised_is_lost(
    sync_flush: bool, scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    for seed in range(3000, 3000 + 2 * scale):
        use_kernels(seed % 2 == 1)
        steps, chance = steps_of(seed, sync_flush=sync_flush, rounds=40), Random(seed)
        for step in chance.sample(range(steps), 25):
            print(f"workload seed {seed}, the first sync after step {step} fails")
            workload, disk = Workload(seed, sync_flush=sync_flush), CrashDisk()
            disk.sync_fails_at = step
            with_a_failed_sync(workload, disk)
            checked.update([FAILED])
            for image in range(3):
                check_recovered(disk.crash(step * 10 + image), workload.config, workload.ledger.copy())
            check_recovered(disk.kill(), workload.config, workload.ledger.copy())


def with_a_failed_sync(workload: Workload, disk: CrashDisk) -> None:
    """Run into the failure, which must be a `StoreError` or a status, and then try to continue."""
    try:
        workload.open(disk)
    except StoreError:
        return
    for _ in range(40):
        try:
            workload.one_step()
        except StoreError:
            workload.promised_to()
    try:
        workload.store and workload.store.close()
    except StoreError:
        pass
    assert workload.store is not None
    workload.promised_to()


def test_a_failed_flush_of_the_log_ends_the_taking_of_messages() -> None:
    workload, disk = Workload(1, sync_flush=True), CrashDisk()
    store = workload.open(disk)
    workload.append(3)
    store.flush_log()
    promised = store.flushed_to
    workload.append(1)
    disk.sync_fails_at = disk.steps
    with pytest.raises(StoreError, match="read-only until a restart"):
        store.flush_log()
    # A second sync would succeed, and mean nothing: the system has forgotten that the pages were dirty.
    with pytest.raises(StoreError):
        store.flush_log()
    with pytest.raises(StoreError):
        store.flush_derived()
    assert store.flushed_to == store.confirmed_to == promised
    (result,) = workload.append(1)
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "restart" in result.reason
    store.close()
    assert check_recovered(disk.crash(1), workload.config, workload.ledger.copy()) >= promised


@pytest.mark.parametrize("sync_flush", [False, True], ids=["async", "sync"])
def test_full_disk_loses_nothing_and_the_same_store_continues(
    sync_flush: bool, scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    for seed in range(4000, 4000 + 2 * scale):
        use_kernels(seed % 2 == 1)
        steps, chance = steps_of(seed, sync_flush=sync_flush, rounds=40), Random(seed)
        for step in chance.sample(range(40, steps), 25):
            print(f"workload seed {seed}, full from step {step}")
            workload, disk = Workload(seed, sync_flush=sync_flush), CrashDisk()
            store = workload.open(disk)
            disk.full_from = step
            refused = run_while_full(workload)
            check_recovered_with_space(workload, disk, step)
            disk.full_from = None
            workload.run(15)
            (taken,) = workload.append(1)
            assert taken.status is PutStatus.PUT_OK
            store.close()
            check_log(disk, workload.ledger, store.written_to)
            check_derived(disk, workload.config)
            checked.update([FILLED] if refused else [])


def run_while_full(workload: Workload) -> bool:
    """Work until the disk was full for a while; True if it was noticed."""
    refused = False
    for _ in range(60):
        try:
            workload.one_step()
        except DiskFull:
            refused = True
    for result in workload.append(1):
        if not result.is_stored:
            assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
            assert "no space left" in result.reason
            refused = True
    return refused


def check_recovered_with_space(workload: Workload, disk: CrashDisk, seed: int) -> None:
    """A crash while the disk is full: after some space was made the store opens as ever."""
    workload.promised_to()
    check_recovered(disk.crash(seed), workload.config, workload.ledger.copy())


def test_opening_a_crashed_store_on_a_full_disk_raises_and_keeps_the_store(
    scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    for seed in range(5000, 5005 + scale):
        print(f"workload seed {seed}")
        use_kernels(seed % 2 == 1)
        workload, disk = Workload(seed, sync_flush=True), CrashDisk()
        workload.open(disk)
        workload.run(40)
        workload.promised_to()
        found = disk.crash(seed)
        steps = steps_to_open(disk.crash(seed), workload)
        for step in range(0, steps, 3):
            found.full_from = found.steps + step
            try:
                MessageStore.open(ROOT, workload.config, workload.clock, found)
                break
            except DiskFull:
                checked.update([FILLED])
            found = found.kill()
        found.full_from = None
        check_recovered(found.kill(), workload.config, workload.ledger.copy())


def test_sync_that_fails_while_recovering_is_reported_and_loses_nothing(
    scale: int, checked: Counter[str], use_kernels: UseKernels
) -> None:
    for seed in range(5500, 5504 + scale):
        print(f"workload seed {seed}")
        use_kernels(seed % 2 == 1)
        workload, disk, chance = Workload(seed, sync_flush=True), CrashDisk(), Random(seed)
        workload.open(disk)
        workload.run(40)
        workload.promised_to()
        steps = steps_to_open(disk.crash(seed), workload)
        for step in chance.sample(range(steps), min(8, steps)):
            found = disk.crash(seed)
            found.sync_fails_at = step
            try:
                MessageStore.open(ROOT, workload.config, workload.clock, found)
            except StoreError:
                checked.update([FAILED])
            check_recovered(found.crash(step), workload.config, workload.ledger.copy())
            check_recovered(found.kill(), workload.config, workload.ledger.copy())


def steps_to_open(disk: CrashDisk, workload: Workload) -> int:
    MessageStore.open(ROOT, workload.config, workload.clock, disk)
    return disk.steps


def test_an_illegal_message_is_refused_before_it_takes_a_number(tmp_path: Path) -> None:
    workload, disk = Workload(1, sync_flush=False), CrashDisk()
    store = workload.open(disk)
    message = random_message(Random(1), 1)
    for wrong in (message._replace(properties_raw=b"p" * 40_000), message._replace(topic="a\0b")):
        assert store.append(wrong).status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
    assert store.written_to == 0
    store.close()
