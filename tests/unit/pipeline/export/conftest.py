"""A store with one topic, and requests to export it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from orbitlog.formats.records.message import make_message
from orbitlog.pipeline.export.export_job import ExportRequest
from orbitlog.pipeline.sources.broker_stores import BrokerStore
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig

DAY_MS = 86_400_000
Send = Callable[..., None]


@pytest.fixture
def clock() -> list[int]:
    return [20_000 * DAY_MS]


@pytest.fixture
def writer(tmp_path: Path, clock: list[int]) -> Iterator[MessageStore]:
    geometry = StoreGeometry(segment_bytes=8192, queue_file_bytes=400)
    with MessageStore.open(tmp_path / "store", StoreConfig(geometry), lambda: clock[0]) as store:
        yield store


@pytest.fixture
def send(writer: MessageStore) -> Send:
    def append(count: int, queue_id: int = 0, body: bytes = b"body") -> None:
        for _ in range(count):
            writer.append(make_message("T", body, queue_id=queue_id, properties={"TAGS": "x", "KEYS": "k"}))
        writer.flush_log()
        writer.dispatch_once()

    return append


@pytest.fixture
def request_of(tmp_path: Path) -> Callable[..., ExportRequest]:
    def make(table_format: str = "parquet", **more: Any) -> ExportRequest:
        stores = (BrokerStore("b", str(tmp_path / "store")),)
        return ExportRequest(stores, "T", tmp_path / table_format, table_format, **more)

    return make
