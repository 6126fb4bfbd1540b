"""The engine over a CommitLog in two directories: placement as Java's, recovery, retention, locks and missing disks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError, StoreLocked
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.store_reader import StoreReader
from orbitlog.storefiles.disk import DiskUsage, RealDisk
from orbitlog.storefiles.log_presence import check_log_is_there
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_paths import StorePaths
from tests.support.retention_stores import CONFIG, HOUR_MS, Clock, check, fill, read_all
from tests.support.spread_stores import digests

SEGMENT_BYTES = CONFIG.geometry.segment_bytes


class TwoDisks(RealDisk):
    """Each directory is on a file system of its own, as full as it is set to be."""

    def __init__(self, percents: dict[Path, float]) -> None:
        self.percents = percents

    def file_system(self, path: Path) -> int:
        return hash(path) if path in self.percents else 0

    def usage(self, path: Path) -> DiskUsage:
        return DiskUsage(10_000_000, round(100_000 * (100 - self.percents.get(path, 10.0))))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def paths(root: Path, tmp_path: Path) -> StorePaths:
    return StorePaths(root, (tmp_path / "a" / "log", tmp_path / "b" / "log"), is_configured=True)


@pytest.fixture
def config(paths: StorePaths) -> StoreConfig:
    return replace(CONFIG, paths=paths)


def numbers_in(directory: Path) -> list[int]:
    return sorted(int(path.name) // SEGMENT_BYTES for path in directory.iterdir())


def test_segments_are_placed_by_number_and_found_after_reopening(
    root: Path, paths: StorePaths, config: StoreConfig
) -> None:
    clock = Clock()
    with MessageStore.open(root, config, clock) as store:
        sent = fill(store)
        check(store, sent)
        bases = store._log.segments.bases
    assert len(bases) > 6 and not (root / "commitlog").exists()
    assert numbers_in(paths.commitlog[0]) == list(range(0, len(numbers_in(paths.commitlog[0])) * 2, 2))
    assert numbers_in(paths.commitlog[1]) == list(range(1, len(numbers_in(paths.commitlog[1])) * 2, 2))
    with MessageStore.open(root, config, clock) as store:
        check(store, sent)
        assert not store.damage
    with StoreReader.open(root, config) as reader:
        assert reader.confirmed_to == store.written_to


def test_log_is_recovered_after_a_kill_and_cut_over_both_directories(
    root: Path, paths: StorePaths, config: StoreConfig
) -> None:
    clock = Clock()
    store = MessageStore.open(root, config, clock)
    sent = fill(store)
    store._opened.release()  # as when its process dies
    last = find_store_files(root, paths).segments[-1]
    # Two segments more, with bytes that are no record: what a crash can leave after the end of the log.
    for number in (1, 2):
        base = last.base + number * SEGMENT_BYTES
        path = paths.directory_of(base // SEGMENT_BYTES) / f"{base:020d}"
        path.write_bytes(b"\1" * SEGMENT_BYTES)
    with MessageStore.open(root, config, clock) as store:
        check(store, sent)
        assert store._log.segments.bases[-1] <= last.base + SEGMENT_BYTES


def test_retention_deletes_over_all_directories_oldest_first(
    root: Path, paths: StorePaths, config: StoreConfig
) -> None:
    clock = Clock()
    with MessageStore.open(root, config, clock) as store:
        sent = fill(store)
        clock.now_ms += 1000 * HOUR_MS * 1000
        deleted = store.retain_once()
        assert [doomed.base for doomed in deleted.segments] == [
            number * SEGMENT_BYTES for number in range(len(deleted.segments))
        ]
        assert len(deleted.segments) > 3
        check(store, sent)
    assert min(numbers_in(paths.commitlog[0]) + numbers_in(paths.commitlog[1])) == len(deleted.segments)


def test_read_only_directory_gets_no_segment_and_expires_like_the_others(root: Path, tmp_path: Path) -> None:
    clock, old, new = Clock(), tmp_path / "old", tmp_path / "new"
    alone = replace(CONFIG, paths=StorePaths(root, (old,), is_configured=True))
    with MessageStore.open(root, alone, clock) as store:
        sent = fill(store, 60)
    kept = numbers_in(old)
    both = replace(CONFIG, paths=StorePaths(root, (new,), (old,), is_configured=True))
    with MessageStore.open(root, both, clock) as store:
        for queue, results in fill(store, 60).items():
            sent[queue] += results
        assert numbers_in(old) == kept and min(numbers_in(new)) == kept[-1] + 1
        for (topic, queue_id), results in sent.items():
            assert read_all(store, topic, queue_id, 0) == [result.physical_offset for result in results]
        clock.now_ms += 1000 * HOUR_MS * 1000
        assert [doomed.base for doomed in store.retain_once().segments][: len(kept)] == [
            number * SEGMENT_BYTES for number in kept
        ]
        assert numbers_in(old) == []


def test_full_directory_gets_no_segment_and_only_the_least_full_counts(
    root: Path, paths: StorePaths, config: StoreConfig
) -> None:
    first, second = paths.commitlog
    disk = TwoDisks({first: 95.0, second: 20.0})
    with MessageStore.open(root, config, Clock(), disk) as store:
        fill(store, 5)
        deleted = store.retain_once()
        assert not deleted.segments and not store._retention.refusal
        fill(store, 60)
        assert numbers_in(first) == [0] and len(numbers_in(second)) > 2
        disk.percents[second] = 97.0
        store.retain_once()
        assert "97.0 % full" not in store._retention.refusal and "95.0 % full" in store._retention.refusal


def test_brokers_with_different_roots_do_not_share_a_log_directory(
    root: Path, paths: StorePaths, config: StoreConfig, tmp_path: Path
) -> None:
    other = StorePaths(tmp_path / "other", (paths.commitlog[1],), is_configured=True)
    with MessageStore.open(root, config, Clock()):
        for log in (other, StorePaths(tmp_path / "other", (tmp_path / "c", paths.commitlog[0]), is_configured=True)):
            with pytest.raises(StoreLocked, match="with another root"):
                MessageStore.open(tmp_path / "other", replace(CONFIG, paths=log), Clock())
    MessageStore.open(tmp_path / "other", replace(CONFIG, paths=other), Clock()).close()


@pytest.mark.parametrize("which", [0, 1])
def test_missing_directory_is_refused_and_nothing_changes(
    root: Path, paths: StorePaths, config: StoreConfig, which: int
) -> None:
    with MessageStore.open(root, config, Clock()) as store:
        fill(store)
    unmounted = paths.commitlog[which]
    away = unmounted.with_name("unmounted")
    unmounted.rename(away)
    for is_empty in (False, True):
        if is_empty:
            unmounted.mkdir()
        before = digests(root, *(path for path in paths.commitlog if path.exists()))
        with pytest.raises(StoreLayoutError, match="mount"):
            check_log_is_there(find_store_files(root, paths))
        with pytest.raises(StoreLayoutError, match="in none of"):
            StoreReader.open(root, config)
        assert digests(root, *(path for path in paths.commitlog if path.exists())) == before


def test_directory_of_the_last_segment_alone_is_missed_too(root: Path, paths: StorePaths, config: StoreConfig) -> None:
    with MessageStore.open(root, config, Clock()) as store:
        fill(store, 18)
    assert numbers_in(paths.commitlog[0]) == [0] and numbers_in(paths.commitlog[1]) == [1]
    paths.commitlog[1].rename(paths.commitlog[1].with_name("unmounted"))
    with pytest.raises(StoreLayoutError, match="refers to messages after"):
        check_log_is_there(find_store_files(root, paths))
    # A directory that was just added has no segment either, and nothing is missing.
    paths.commitlog[1].with_name("unmounted").rename(paths.commitlog[1])
    more = StorePaths(root, (*paths.commitlog, paths.root.parent / "c"), is_configured=True)
    check_log_is_there(find_store_files(root, more))


def test_log_that_is_missing_as_a_whole_is_refused_with_the_setting_to_give(root: Path) -> None:
    with MessageStore.open(root, CONFIG, Clock()) as store:
        fill(store, 20)
    (root / "commitlog").rename(root.parent / "log")
    with pytest.raises(StoreLayoutError, match="--set storePathCommitLog=DIR"):
        check_log_is_there(find_store_files(root))
    elsewhere = StorePaths(root, (root.parent / "log",), is_configured=True)
    check_log_is_there(find_store_files(root, elsewhere))
    MessageStore.open(root, replace(CONFIG, paths=elsewhere), Clock()).close()
