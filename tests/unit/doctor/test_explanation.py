"""Explanation of a store: messages that no queue has a unit for are counted as well."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitlog.doctor.explanation import explain
from tests.support import store_kinds
from tests.support.store_kinds import KINDS, make_store


@pytest.mark.parametrize("dledger_segment_bytes", [2048, 4096, 16384])
def test_store_switched_to_dledger_with_short_queues_has_all_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dledger_segment_bytes: int
) -> None:
    make_store(tmp_path / "store")
    end = store_kinds._close_log(tmp_path / "store")
    monkeypatch.setattr(store_kinds, "SEGMENT_BYTES", dledger_segment_bytes)
    store_kinds.make_dledger_log(tmp_path / "store", 12, first_base=end, next_offsets={"T": 30})
    found = explain(tmp_path / "store")
    assert [(one.topic, one.queues, one.messages) for one in found.topics] == [("T", 2, 72)]
    assert found.not_in_queues == 12


@pytest.mark.parametrize("kind", ["DLedger", "converted to DLedger"])
def test_store_without_queues_has_all_messages(tmp_path: Path, kind: str) -> None:
    make_store(tmp_path / "store")
    KINDS[kind](tmp_path / "store")
    shutil.rmtree(tmp_path / "store/consumequeue")
    found = explain(tmp_path / "store")
    count = 60 if kind == "DLedger" else 72
    assert (found.not_in_queues, sum(one.messages for one in found.topics)) == (count, count)


def test_store_with_all_queues_reads_no_log(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    found = explain(tmp_path / "store")
    assert (found.not_in_queues, sum(one.messages for one in found.topics)) == (0, 60)


def test_dledger_log_without_its_last_file_is_named(tmp_path: Path) -> None:
    store_kinds.make_dledger_store(tmp_path / "store", 60)
    assert explain(tmp_path / "store").dledger == "dledger-n0"
    max((tmp_path / "store/dledger-n0/data").iterdir()).unlink()
    assert "files are missing" in str(explain(tmp_path / "store").dledger)
