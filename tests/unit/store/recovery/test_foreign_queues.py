"""Logs that are older than their queues, or of another store: refused as they are, never completed by deleting."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.compat import COMPAT_4_9, COMPAT_5_5, Compat
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.records.message import make_message
from orbitlog.store.message_store import MessageStore
from orbitlog.store.reads.key_query import KeyQuery
from orbitlog.store.recovery.opening_trial import try_opening
from orbitlog.storefiles.store_config import StoreConfig
from tests.support.store_kinds import GEOMETRY, STORED_MS, fingerprint

BOTH = pytest.mark.parametrize("compat", [COMPAT_4_9, COMPAT_5_5], ids=lambda compat: compat.name)


def config_of(compat: Compat) -> StoreConfig:
    return StoreConfig(GEOMETRY, DeriveRules(compat=compat))


def make(root: Path, config: StoreConfig, number: int = 60, *, size: int = 100, is_java: bool = False) -> None:
    """Write a store with the queues 0 and 1 of topic T and close it; a Java broker leaves no state file."""
    clock = count(STORED_MS)
    with MessageStore.open(root, config, lambda: next(clock)) as store:
        for at in range(number):
            store.append(make_message("T", b"x" * size, queue_id=at % 2, properties={"KEYS": f"k{at}"}))
    if is_java:
        for path in root.glob("orbitlog.*"):
            path.unlink()


def refused(root: Path, config: StoreConfig) -> str:
    """Open a store, expect a refusal that changes nothing, and the same sentence from the trial."""
    before = fingerprint(root)
    with pytest.raises(StoreLayoutError) as error:
        MessageStore.open(root, config, lambda: STORED_MS)
    with pytest.raises(StoreLayoutError) as tried:
        try_opening(root, config)
    assert fingerprint(root) == before
    assert str(tried.value) == str(error.value)
    return str(error.value)


def bounds(root: Path, config: StoreConfig) -> list[tuple[int, int]]:
    with MessageStore.open(root, config, lambda: STORED_MS) as store:
        queues = [store.queue("T", queue_id) for queue_id in (0, 1)]
        return [(queue.min_offset, queue.max_offset) for queue in queues if queue is not None]


def _zero_last_segment(root: Path) -> None:
    path = max((root / "commitlog").iterdir())
    path.write_bytes(bytes(path.stat().st_size))


def _zero_last_messages(root: Path) -> None:
    path = max((root / "commitlog").iterdir())
    content = path.read_bytes()
    half = len(content.rstrip(b"\0")) // 2
    path.write_bytes(content[:half].ljust(len(content), b"\0"))


def _damage_last_message(root: Path) -> None:
    path = max((root / "commitlog").iterdir())
    content = bytearray(path.read_bytes())
    content[content.rindex(b"x")] ^= 1
    path.write_bytes(content)


OLDER: dict[str, Callable[[Path], None]] = {
    "last segment": _zero_last_segment,
    "last messages": _zero_last_messages,
}


@BOTH
@pytest.mark.parametrize("is_java", [False, True])
@pytest.mark.parametrize("lost", OLDER)
def test_cleanly_stopped_store_whose_log_ends_early_is_refused(
    lost: str, is_java: bool, compat: Compat, tmp_path: Path
) -> None:
    make(tmp_path, config_of(compat), is_java=is_java)
    OLDER[lost](tmp_path)
    sentence = refused(tmp_path, config_of(compat))
    assert "ends at physical offset" in sentence
    assert f"`orbitlog doctor repair {tmp_path} --apply`" in sentence


@BOTH
def test_damaged_last_message_of_a_cleanly_stopped_java_broker_is_not_cut(compat: Compat, tmp_path: Path) -> None:
    make(tmp_path, config_of(compat), is_java=True)
    _damage_last_message(tmp_path)
    assert "ends at physical offset" in refused(tmp_path, config_of(compat))


@BOTH
@pytest.mark.parametrize("lost", OLDER)
def test_killed_store_whose_log_ends_before_its_state_file_is_refused(
    lost: str, compat: Compat, tmp_path: Path
) -> None:
    make(tmp_path, config_of(compat))
    (tmp_path / "abort").touch()
    OLDER[lost](tmp_path)
    assert "but orbitlog.state records messages up to" in refused(tmp_path, config_of(compat))


@BOTH
def test_record_that_ends_with_zeros_is_no_reason_to_refuse(compat: Compat, tmp_path: Path) -> None:
    clock = count(STORED_MS)
    with MessageStore.open(tmp_path, config_of(compat), lambda: next(clock)) as store:
        for _ in range(2):
            assert store.append(make_message("T", bytes(200))).is_stored
    assert bounds(tmp_path, config_of(compat))[0] == (0, 2)


@BOTH
@pytest.mark.parametrize("is_java", [False, True])
@pytest.mark.parametrize("part", ["commitlog", "consumequeue"])
def test_log_and_queues_of_different_stores_are_refused(
    part: str, is_java: bool, compat: Compat, tmp_path: Path
) -> None:
    config, root, other = config_of(compat), tmp_path / "store", tmp_path / "other"
    make(root, config, is_java=is_java)
    make(other, config, number=70, size=93)
    shutil.rmtree(root / part)
    shutil.copytree(other / part, root / part)
    sentence = refused(root, config)
    assert "of another store" in sentence or "refers to messages after it" in sentence


@BOTH
def test_one_queue_of_another_store_is_rebuilt(compat: Compat, tmp_path: Path) -> None:
    """Most queues show that the log is theirs: one that is not is damage, which the log repairs."""
    config, root, other = config_of(compat), tmp_path / "store", tmp_path / "other"
    make(root, config, is_java=True)
    make(other, config, number=60, size=93)
    shutil.rmtree(root / "consumequeue/T/1")
    shutil.copytree(other / "consumequeue/T/1", root / "consumequeue/T/1")
    assert bounds(root, config) == [(0, 30), (0, 30)]


@BOTH
@pytest.mark.parametrize("is_java", [False, True])
def test_index_of_another_store_is_rebuilt(is_java: bool, compat: Compat, tmp_path: Path) -> None:
    config, root, other = config_of(compat), tmp_path / "store", tmp_path / "other"
    make(root, config, is_java=is_java)
    make(other, config, number=50, size=77)
    shutil.rmtree(root / "index")
    shutil.copytree(other / "index", root / "index")
    with MessageStore.open(root, config, lambda: STORED_MS) as store:
        assert store.damage == []
        for number in range(60):
            assert len(store.query(KeyQuery("T", f"k{number}")).records) == 1


@BOTH
@pytest.mark.parametrize("lost", OLDER)
def test_killed_store_of_a_java_broker_that_lost_flushed_messages_is_refused(
    lost: str, compat: Compat, tmp_path: Path
) -> None:
    make(tmp_path, config_of(compat), is_java=True)
    (tmp_path / "abort").touch()
    OLDER[lost](tmp_path)
    assert "checkpoint records a flush of messages stored up to" in refused(tmp_path, config_of(compat))


@BOTH
def test_killed_store_that_lost_messages_after_the_last_flush_is_recovered(compat: Compat, tmp_path: Path) -> None:
    make(tmp_path, config_of(compat), is_java=True)
    (tmp_path / "abort").touch()
    raw = bytearray((tmp_path / "checkpoint").read_bytes())
    raw[:8] = (STORED_MS + 1).to_bytes(8, "big")
    raw[24:] = bytes(len(raw) - 24)
    (tmp_path / "checkpoint").write_bytes(raw)
    _zero_last_segment(tmp_path)
    low, high = zip(*bounds(tmp_path, config_of(compat)), strict=True)
    assert low == (0, 0)
    assert 0 < sum(high) < 60
