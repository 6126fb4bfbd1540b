"""Compaction by a streaming export: when it runs, and that a failure does not stop the export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export import compaction_job, followed_compaction, parquet_compaction
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic, writer_lock
from orbitlog.pipeline.export.followed_compaction import FollowedCompaction
from tests.support.exported_rows import places

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"
)
DAY_MS = 86_400_000


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_followed_compaction_merges_a_day_once_it_has_enough_files(
    send: Callable[..., None],
    clock: list[int],
    request_of: Callable[..., ExportRequest],
    table_format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = request_of(table_format)
    reports: list[str] = []
    listed: list[object] = []
    count = compaction_job.count_small_files
    monkeypatch.setattr(
        followed_compaction, "count_small_files", lambda asked: listed.append(asked.days) or count(asked)
    )
    compaction = FollowedCompaction(run_here, request, 4, reports.append)
    for number in range(9):
        if number == 8:
            clock[0] += DAY_MS
        send(3)
        assert sum(batch.messages for batch in export_topic(run_here, request)) == 3
        with writer_lock(request):
            compaction.after_batch(["2024-10-05" if number == 8 else "2024-10-04"])
    assert [report.partition(" (")[0] for report in reports] == ["2024-10-04: 4 files merged into 1"] * 2
    # The table is asked at the first batch of a day, and when a day may have enough files.
    assert listed == [frozenset(["2024-10-04"])] * 3 + [frozenset(["2024-10-05"])]
    assert places(request.target, table_format) == [(0, number) for number in range(27)]


def test_failed_compaction_is_reported_and_repeated(
    send: Callable[..., None], request_of: Callable[..., ExportRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(batch_messages=2)
    send(6)
    list(export_topic(run_here, request))
    reports: list[str] = []
    compaction = FollowedCompaction(run_here, request, 2, reports.append)

    def refuse(*_: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(parquet_compaction, "exchange_directories", refuse)
        compaction.after_batch(["2024-10-04"])
    (report,) = reports
    assert report.startswith("compaction failed, and the export continues: could not replace ")
    compaction.after_batch(["2024-10-04"])
    assert len(reports) == 1  # not after every batch
    compaction.after_batch(["2024-10-04"])
    assert reports[1].startswith("2024-10-04: 3 files merged into 1")
    assert len(places(request.target, "parquet")) == 6
