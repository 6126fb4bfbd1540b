"""Many queues, few open files."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.formats.index_layout import IndexLayout
from orbitlog.formats.message import make_message
from orbitlog.store import queue_set
from orbitlog.store.message_store import MessageStore
from orbitlog.store.store_config import StoreConfig
from orbitlog.store.store_reader import StoreReader
from orbitlog.store.store_settings import StoreGeometry
from orbitlog.testing.crash_disk import CrashDisk

CONFIG = StoreConfig(StoreGeometry(1 << 16, 200, index_layout=IndexLayout(10, 300)))
ROOT = Path("store")
QUEUES, OPEN_QUEUES_MAX, OTHERS_MAX = 60, 3, 8


@pytest.mark.parametrize("is_killed", [False, True], ids=["closed", "killed"])
@pytest.mark.parametrize("is_vouched_for", [False, True], ids=["gone through", "trusted"])
def test_opening_a_store_opens_few_files_at_a_time(
    is_killed: bool, is_vouched_for: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_set, "_OPEN_QUEUES_MAX", OPEN_QUEUES_MAX)
    disk = CrashDisk()
    store = MessageStore.open(ROOT, CONFIG, lambda: 1_000, disk)
    for number in range(QUEUES):
        assert store.append(make_message(f"T{number}", b"x", queue_id=0)).is_stored
    store.dispatch_once()
    if is_vouched_for:
        store.flush_derived()
    if not is_killed:
        store.close()
    disk = disk.kill()
    store = MessageStore.open(ROOT, CONFIG, lambda: 1_000, disk)
    assert sum(1 for _ in store._queues) == QUEUES
    with StoreReader.open(ROOT, CONFIG, disk) as reader:
        assert sum(queue.max_offset for queue in reader._queues) == QUEUES
    store.close()
    assert disk.open_files == 0
    assert disk.open_files_most <= 2 * (OPEN_QUEUES_MAX + OTHERS_MAX)
