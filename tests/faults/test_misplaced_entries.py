"""Entries in the place of files: the store is refused before a byte of it changes, or the file is replaced."""

from __future__ import annotations

import os
from itertools import count, islice
from pathlib import Path

import pytest

from orbitlog.doctor.examination import examine
from orbitlog.doctor.repair.store_repair import apply_repair
from orbitlog.errors import OrbitlogError, StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.store_state import CONFIRMED_FILE
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.store.recovery.opening_trial import try_opening
from orbitlog.storefiles.findings import FindingKind
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.testing.sample_messages import sample_messages
from tests.support.store_kinds import fingerprint

NOW_MS = 1_790_000_000_000
CONFIG = StoreConfig(StoreGeometry(32 * 1024, 1220, index_layout=IndexLayout(307, 905)))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of several segments that Orbitlog closed."""
    clock = count(NOW_MS, 5)
    with MessageStore.open(tmp_path / "store", CONFIG, lambda: next(clock)) as opened:
        for message in islice(sample_messages(NOW_MS), 400):
            opened.append(message)
    return tmp_path / "store"


def opened(root: Path) -> MessageStore:
    return MessageStore.open(root, CONFIG, lambda: NOW_MS)


@pytest.mark.parametrize("kind", ["first segment", "last segment", "queue file", "index file"])
def test_directory_in_place_of_a_file_is_refused_and_nothing_changes(store: Path, kind: str) -> None:
    """Without its first segment the store would look as if retention had deleted it."""
    files = find_store_files(store)
    path = {
        "first segment": files.segments[0].path,
        "last segment": files.segments[-1].path,
        "queue file": next(iter(files.queues.values()))[0].path,
        "index file": files.index_files[-1].path,
    }[kind]
    path.unlink()
    path.mkdir()
    before = fingerprint(store)
    for open_it in (opened, lambda root: try_opening(root, CONFIG)):
        with pytest.raises(StoreLayoutError, match="is a directory with the name of a file of the store") as refused:
            open_it(store)
        assert str(path) in str(refused.value)
        assert fingerprint(store) == before
    assert not examine(store).is_sound


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
def test_directory_in_place_of_an_index_file_is_quarantined_by_a_repair(store: Path, is_killed: bool) -> None:
    """After a kill the keys of that file may count as not derived yet: the directory itself is the finding."""
    if is_killed:
        (store / tree.ABORT).touch()
    path = find_store_files(store).index_files[-1].path
    path.unlink()
    path.mkdir()
    assert FindingKind.FOREIGN_SEGMENT in {one.finding.kind for one in examine(store).problems}
    assert apply_repair(store).is_sound
    opened(store).close()


def test_topic_and_queue_with_names_like_those_of_files_are_opened(store: Path) -> None:
    message = next(iter(sample_messages(NOW_MS)))
    for topic in ("0" * 20, "20260101000000000"):
        with opened(store) as again:
            again.append(message._replace(topic=topic))
    opened(store).close()


@pytest.mark.parametrize("content", [b"", b"torn"])
def test_confirmed_offset_of_another_size_is_replaced(store: Path, content: bytes) -> None:
    """A kill between its creation and its first byte leaves an empty file, which cannot be mapped."""
    (store / CONFIRMED_FILE).write_bytes(content)
    for _ in range(2):
        opened(store).close()


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_confirmed_offset_that_is_not_a_file_is_refused_and_nothing_changes(store: Path, make: object) -> None:
    (store / CONFIRMED_FILE).unlink(missing_ok=True)
    make(store / CONFIRMED_FILE)  # type: ignore[operator]
    before = contents_of(store)
    with pytest.raises(OrbitlogError):
        opened(store)
    assert contents_of(store) == before


def contents_of(root: Path) -> dict[str, bytes | None]:
    """Return the content of every file; None for directories and pipes."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}
