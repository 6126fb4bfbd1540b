"""A dispatch query that fails is restarted under a new lease, and given up at last; `tests/spark` has a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbitlog.formats.records.message import make_message
from orbitlog.pipeline.dispatch import dispatch_query
from orbitlog.pipeline.dispatch.dispatch_query import DispatchQuery
from orbitlog.pipeline.runtime.spark_runner import JobFailed
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", StoreConfig(dispatch_engine="spark"), lambda: 1) as opened:
        yield opened


def failing(root: Path, failures: int, monkeypatch: pytest.MonkeyPatch) -> tuple[DispatchQuery, list[int]]:
    """A query that fails N times, and the epochs under which it was started."""
    epochs: list[int] = []

    def serve(_: DispatchQuery, owner: Any, *_more: Any, once: bool) -> None:
        assert once
        epochs.append(owner.lease.epoch)
        if len(epochs) <= failures:
            raise JobFailed("a worker is gone")

    monkeypatch.setattr(DispatchQuery, "_serve", serve)
    return DispatchQuery(no_spark(), root), epochs


def no_spark() -> Any:
    pytest.importorskip("pyspark")
    return SimpleNamespace(
        dataSource=SimpleNamespace(register=lambda _: None), conf=SimpleNamespace(set=lambda *_: None)
    )


@pytest.mark.usefixtures("store")
def test_once_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query, epochs = failing(tmp_path / "store", 2, monkeypatch)
    assert query.run_once().epoch == epochs[-1]
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]


def test_once_is_given_up_and_dispatch_is_handed_back(
    tmp_path: Path, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, epochs = failing(tmp_path / "store", 100, monkeypatch)
    with pytest.raises(JobFailed, match="a worker is gone"):
        query.run_once()
    assert len(epochs) == 4
    assert store.take_back_dispatch(), "no process holds it any more"


def test_stalled_query_is_restarted(tmp_path: Path, store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that hangs reports nothing, and Spark waits for it for ever."""
    stopped: list[int] = []

    def start(_: DispatchQuery, owner: Any, *, once: bool) -> Any:
        assert once
        return SimpleNamespace(isActive=True, stop=lambda: stopped.append(owner.lease.epoch), exception=lambda: None)

    store.append(make_message("T", b"waits"))
    store.dispatch_once()  # tells how far the log may be read
    monkeypatch.setattr(DispatchQuery, "_start", start)
    monkeypatch.setattr(dispatch_query, "_STALL_S", 0.2)
    with pytest.raises(JobFailed, match="made no progress"):
        DispatchQuery(no_spark(), tmp_path / "store").run_once()
    assert len(stopped) == 4
    assert store.take_back_dispatch(), "no process holds it any more"
