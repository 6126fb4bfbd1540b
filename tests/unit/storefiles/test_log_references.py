"""Log references: a log that lacks messages which other files refer to is refused, never completed by deleting."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.golden import GoldenStore
from tests.support.golden_configs import CONFIGS
from tests.support.store_kinds import CONFIG, STORED_MS, fingerprint, make_store, put

REFERRING = ("consumequeue", "index", "checkpoint", "orbitlog.state", "config")


def refused(root: Path, config: StoreConfig = CONFIG) -> str:
    """Open a store, expect a refusal that changes nothing but the lock file, and return its sentence."""
    before = fingerprint(root)
    with pytest.raises(StoreLayoutError) as error:
        MessageStore.open(root, config, lambda: STORED_MS)
    after = fingerprint(root)
    assert {name for name in before | after if before.get(name) != after.get(name)} <= {"lock"}
    return str(error.value)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _no_directory(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


def _no_segment(root: Path) -> None:
    for path in (root / "commitlog").iterdir():
        path.unlink()


def _mount_point(root: Path) -> None:
    (root / "commitlog").rename(root.parent / "elsewhere")
    (root / "commitlog").mkdir()


MISSING: dict[str, Callable[[Path], None]] = {
    "directory": _no_directory,
    "segments": _no_segment,
    "disk that is not mounted": _mount_point,
}


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("kept", [kept for count in range(1, 6) for kept in combinations(REFERRING, count)])
def test_missing_log_beside_any_file_that_refers_to_messages_is_refused(
    missing: str, kept: tuple[str, ...], tmp_path: Path
) -> None:
    root = tmp_path / "store"
    make_store(root)
    MISSING[missing](root)
    for name in set(REFERRING) - set(kept):
        remove(root / name)
    sentence = refused(root)
    assert "has no CommitLog segment" in sentence
    assert "storePathCommitLog" in sentence


def test_missing_log_beside_tables_without_offsets_is_a_new_store(tmp_path: Path) -> None:
    put(tmp_path / "config/topics.json", b'{"topicConfigTable":{"T":{"topicName":"T"}}}')
    put(tmp_path / "config/consumerOffset.json", b'{"offsetTable":{"T@g":{0:0}}}')
    put(tmp_path / "config/delayOffset.json", b'{"offsetTable":{1:0}}')
    put(tmp_path / "checkpoint", bytes(4096))
    MessageStore.open(tmp_path, CONFIG, lambda: STORED_MS).close()


def test_missing_log_beside_delay_offsets_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "config/delayOffset.json", b'{"offsetTable":{3:12}}')
    assert "delayOffset.json" in refused(tmp_path)


@pytest.mark.parametrize("removed", [(), ("orbitlog.state",), ("orbitlog.state", "checkpoint"), ("consumequeue",)])
@pytest.mark.parametrize("is_closed", [True, False])
def test_missing_last_segments_are_refused(removed: tuple[str, ...], is_closed: bool, tmp_path: Path) -> None:
    make_store(tmp_path)
    segments = sorted((tmp_path / "commitlog").iterdir())
    assert len(segments) == 3
    for segment in segments[-2:]:
        segment.unlink()
    for name in removed:
        remove(tmp_path / name)
    if not is_closed:
        put(tmp_path / "abort", b"")
    assert "the last segment of" in refused(tmp_path)


def test_refused_store_keeps_empty_files_that_a_crash_left(tmp_path: Path) -> None:
    make_store(tmp_path)
    segments = sorted((tmp_path / "commitlog").iterdir())
    for segment in segments[-2:]:
        segment.unlink()
    segments[1].touch()
    (tmp_path / "index" / "20260101000000000").touch()
    assert "the last segment of" in refused(tmp_path)  # which compares the tree
    assert segments[1].exists() and (tmp_path / "index" / "20260101000000000").exists()


def test_missing_middle_segment_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path)
    sorted((tmp_path / "commitlog").iterdir())[1].unlink()
    assert "lacks the segment" in refused(tmp_path)


@pytest.mark.parametrize("is_closed", [True, False])
def test_log_of_zeros_beside_flushed_messages_is_refused(is_closed: bool, tmp_path: Path) -> None:
    make_store(tmp_path)
    for segment in (tmp_path / "commitlog").iterdir():
        segment.write_bytes(bytes(segment.stat().st_size))
    if not is_closed:
        put(tmp_path / "abort", b"")
    assert "holds no message" in refused(tmp_path)


@pytest.mark.parametrize("name", ["golden_497", "golden_550_crash"])
@pytest.mark.parametrize("cut", [2, 3])
def test_java_store_without_its_last_segments_is_refused(
    name: str, cut: int, request: pytest.FixtureRequest, golden_copy: Callable[[GoldenStore], GoldenStore]
) -> None:
    golden = golden_copy(request.getfixturevalue(name))
    for segment in sorted((golden.store / "commitlog").iterdir())[-cut:]:
        segment.unlink()
    assert "the last segment of" in refused(golden.store, CONFIGS[name])


def test_record_of_an_unknown_kind_that_queues_refer_to_is_refused(tmp_path: Path) -> None:
    make_store(tmp_path, count=12)
    (tmp_path / "orbitlog.state").unlink()
    segment = tmp_path / "commitlog" / f"{0:020d}"
    raw = bytearray(segment.read_bytes())
    position = 0
    for _ in range(5):
        position += int.from_bytes(raw[position : position + 4], "big")
    while raw[position + 4 : position + 8] == bytes.fromhex("DAA320A7"):
        raw[position + 4 : position + 8] = bytes.fromhex("DAA320AF")  # a version that does not exist yet
        position += int.from_bytes(raw[position : position + 4], "big")
    segment.write_bytes(raw)
    assert "unknown magic" in refused(tmp_path)


def test_one_damaged_unit_is_no_evidence_against_a_whole_log(tmp_path: Path) -> None:
    make_store(tmp_path)
    (tmp_path / "orbitlog.state").unlink()
    last = max((tmp_path / "consumequeue/T/0").iterdir())
    raw = bytearray(last.read_bytes())
    end = len(raw.rstrip(b"\0")) // 20 * 20
    raw[max(end - 20, 0) + 1] |= 0x40  # the physical offset is far away now
    last.write_bytes(raw)
    with MessageStore.open(tmp_path, CONFIG, lambda: STORED_MS) as store:
        queue = store.queue("T", 0)
        assert queue is not None
        assert (queue.min_offset, queue.max_offset) == (0, 30)
