"""The index timestamp of a new checkpoint: as brokers write it, but so that a killed one keeps its last file."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import decode_checkpoint
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry, load_settings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

BEGIN_MS = 1_700_000_000_000
GEOMETRY = StoreGeometry(segment_bytes=16384, queue_file_bytes=400, index_layout=IndexLayout(10, 20))


@pytest.mark.parametrize("was_killed", [False, True], ids=["closed", "killed"])
def test_a_killed_store_keeps_its_last_index_file(tmp_path: Path, was_killed: bool) -> None:
    clock = iter(range(BEGIN_MS, BEGIN_MS + 10_000))
    with MessageStore.open(tmp_path, StoreConfig(GEOMETRY), lambda: next(clock)) as store:
        for number in range(30):
            store.append(make_message("T", b"x", properties={"KEYS": f"k{number}"}))
        store.dispatch_once()
    brokers = decode_checkpoint((tmp_path / tree.CHECKPOINT).read_bytes())
    if was_killed:
        (tmp_path / tree.ABORT).touch()
    rebuild_in_place(tmp_path, RebuildWish(), load_settings(None, ("maxHashSlotNum=10", "maxIndexNum=20")))
    rebuilt = decode_checkpoint((tmp_path / tree.CHECKPOINT).read_bytes())
    assert 0 < brokers.index_msg_timestamp_ms < brokers.logics_msg_timestamp_ms
    expected = rebuilt.logics_msg_timestamp_ms if was_killed else brokers.index_msg_timestamp_ms
    assert rebuilt.index_msg_timestamp_ms == expected
