"""Every writer and reader over every kind of store that it does not support: a refusal, and not a byte changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitlog.broker.runtime.broker_opening import open_broker_store
from orbitlog.broker.runtime.broker_settings import BrokerSettings
from orbitlog.doctor.examination import examine
from orbitlog.doctor.explanation import explain
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
from orbitlog.doctor.repair.repair_journal import undo_last
from orbitlog.doctor.repair.store_repair import apply_repair, plan_repair
from orbitlog.errors import OrbitlogError, StoreLayoutError
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.jobs.check.store_check import check_with
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.pipeline.stats.consumer_lag import read_progress
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.store.dispatch.external_dispatch import ExternalDispatch
from orbitlog.store.message_store import MessageStore
from orbitlog.store.offline_writer import OfflineStoreWriter
from orbitlog.store.recovery.opening_trial import try_opening
from tests.support.source_runs import read_batch
from tests.support.store_kinds import (
    CONFIG,
    DLEDGER_KINDS,
    GEOMETRY,
    KINDS,
    REBUILDABLE_KINDS,
    REPAIRABLE_KINDS,
    STORED_MS,
    fingerprint,
    make_store,
)

WRITERS: dict[str, Callable[[Path], object]] = {
    "engine": lambda root: MessageStore.open(root, CONFIG, lambda: STORED_MS),
    "broker": lambda root: open_broker_store(BrokerSettings(), root),
    "dispatch by Spark": lambda root: ExternalDispatch.take(root, "spark"),
    "offline writer": lambda root: OfflineStoreWriter(root, GEOMETRY, DeriveRules()),
}
REBUILDS: dict[str, Callable[[Path], object]] = {
    "doctor rebuild": lambda root: rebuild_in_place(root, RebuildWish(), StoreSettings()),
    "pipeline rebuild": lambda root: rebuild_with(
        run_here, [root], out=None, settings=StoreSettings(), split_bytes=4096
    ),
    "pipeline rebuild --out": lambda root: rebuild_with(
        run_here, [root], out=root.parent / "out", settings=StoreSettings(), split_bytes=4096
    ),
}
REPAIRS: dict[str, Callable[[Path], object]] = {
    "doctor repair": apply_repair,
    "doctor undo": undo_last,
}
READERS: dict[str, Callable[[Path], object]] = {
    "doctor check": examine,
    "doctor explain": explain,
    "doctor repair, planned": plan_repair,
    "pipeline check": lambda root: check_with(run_here, [root], settings=StoreSettings(), split_bytes=4096),
    "pipeline stats": lambda root: read_progress(BrokerStore("broker-a", str(root))),
    "topic source": lambda root: read_batch(TopicSource, {"storePath": str(root), "subscribePattern": ".*"}),
}


def _with(root: Path, kind: str) -> dict[str, str]:
    make_store(root)
    KINDS[kind](root)
    return fingerprint(root)


def _pairs() -> list[tuple[str, str]]:
    """Return writers with the kinds that they refuse: the doctor may work beside a strange directory."""
    pairs = [(writer, kind) for writer in WRITERS for kind in KINDS]
    pairs += [
        (writer, kind)
        for writer in REBUILDS
        for kind in KINDS.keys() - REBUILDABLE_KINDS
        if "--out" not in writer or kind not in DLEDGER_KINDS
    ]
    pairs += [(writer, kind) for writer in REPAIRS for kind in KINDS.keys() - REPAIRABLE_KINDS]
    return sorted(pairs)


@pytest.mark.parametrize(("writer", "kind"), _pairs())
def test_writer_given_an_unsupported_store_refuses_and_changes_nothing(writer: str, kind: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    before = _with(root, kind)
    with pytest.raises(OrbitlogError) as refused:
        {**WRITERS, **REBUILDS, **REPAIRS}[writer](root)
    assert "\n" not in str(refused.value)
    assert fingerprint(root) == before
    assert not (tmp_path / "out").exists()


LEFT_OUT = [kind for kind in KINDS if "DLedger" in kind or "queues" in kind or "batch" in kind]
CHECKS = {"doctor check", "doctor repair, planned", "pipeline check"}
READ_DLEDGER = {"doctor check", "doctor explain", "pipeline check", "pipeline stats", "topic source"}


@pytest.mark.parametrize(
    ("reader", "kind"),
    [
        (reader, kind)
        for reader in READERS
        for kind in LEFT_OUT
        # A check names batch queues as unchecked.
        if (reader not in CHECKS or "batch" not in kind) and (reader not in READ_DLEDGER or kind not in DLEDGER_KINDS)
    ],
)
def test_reader_given_messages_that_it_would_leave_out_refuses(reader: str, kind: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    before = _with(root, kind)
    with pytest.raises(StoreLayoutError, match="not read"):
        READERS[reader](root)
    assert fingerprint(root) == before


@pytest.mark.parametrize("reader", sorted(READ_DLEDGER))
@pytest.mark.parametrize("kind", sorted(DLEDGER_KINDS))
def test_reader_of_dledger_logs_reads_them_and_changes_nothing(reader: str, kind: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    before = _with(root, kind)
    READERS[reader](root)
    assert fingerprint(root) == before


@pytest.mark.parametrize("kind", ["batch queues", "compacted messages"])
def test_check_names_messages_that_it_does_not_read_as_unchecked(kind: str, tmp_path: Path) -> None:
    before = _with(tmp_path, kind)
    assert "unchecked" in {finding.kind for finding in examine(tmp_path).findings}
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize("kind", ["several DLedger members", "tiered storage", "unknown log"])
def test_log_source_refuses_a_log_that_continues_in_another_directory(kind: str, tmp_path: Path) -> None:
    _with(tmp_path, kind)
    with pytest.raises(StoreLayoutError, match="not read"):
        read_batch(CommitLogSource, {"storePath": str(tmp_path)})


@pytest.mark.parametrize("kind", ["RocksDB queues", "RocksDB topics", "batch queues"])
def test_log_source_reads_the_log_of_a_store_whose_queues_are_of_another_kind(kind: str, tmp_path: Path) -> None:
    _with(tmp_path, kind)
    assert read_batch(CommitLogSource, {"storePath": str(tmp_path)}).num_rows == 60


@pytest.mark.parametrize("writer", [*WRITERS, *REBUILDS])
@pytest.mark.parametrize("missing", ["commitlog", "segments"])
def test_writer_given_a_store_without_its_log_refuses_and_changes_nothing(
    writer: str, missing: str, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    make_store(root)
    for segment in (root / "commitlog").iterdir():
        segment.unlink()
    if missing == "commitlog":
        (root / "commitlog").rmdir()
    before = fingerprint(root)
    with pytest.raises(OrbitlogError):
        {**WRITERS, **REBUILDS}[writer](root)
    assert fingerprint(root) == before


@pytest.mark.parametrize("writer", ["engine", "broker", "doctor rebuild", "doctor repair"])
@pytest.mark.parametrize("name", ["", "commitlog", "consumequeue", "config"])
def test_writer_given_a_directory_that_it_may_not_write_to_refuses(
    writer: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests run as root, which may write everywhere; a read-only mount answers the same question with no."""
    root = tmp_path / "store"
    make_store(root)
    before = fingerprint(root)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != root / name)
    with pytest.raises(
        StoreLayoutError, match=r"store not opened for writing: .* cannot be written to; run the command"
    ):
        {**WRITERS, **REBUILDS, **REPAIRS}[writer](root)
    with pytest.raises(StoreLayoutError, match="cannot be written to"):
        try_opening(root, CONFIG)
    assert fingerprint(root) == before
    examine(root)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_broker_on_a_read_only_mount_names_it(tmp_path: Path) -> None:
    root, place = tmp_path / "store", tmp_path / "mounted"
    make_store(root)
    place.mkdir()
    mounted = subprocess.run(["mount", "--bind", str(root), str(place)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True)
        with pytest.raises(StoreLayoutError, match="is mounted read-only; mount it writable"):
            open_broker_store(BrokerSettings(), place)
        assert examine(place).check.messages == 60
    finally:
        subprocess.run(["umount", str(place)], check=True)
