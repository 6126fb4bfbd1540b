"""Kills at random times of a process that exports and compacts in turn: each row stays in the table once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from orbitlog.formats.records.message import make_message
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from tests.support.exported_rows import places

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"),
]
MESSAGES, BATCH, KILLS = 600, 10, 6
DAY_MS = 86_400_000
FIRST_COMMIT = {
    "parquet": "_orbitlog/commits/*.json",
    "delta": "_delta_log/*.json",
    "iceberg": "metadata/v*.metadata.json",
}
PROGRAM = f"""
import sys
from pathlib import Path
from orbitlog.jobs.local_runner import run_here
from orbitlog.pipeline.export.compaction_job import CompactionRequest, compact_table
from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
from orbitlog.pipeline.sources.broker_stores import BrokerStore

target = Path(sys.argv[2])
stores = (BrokerStore("b", sys.argv[1]),)
request = ExportRequest(stores, "T", target, sys.argv[3], batch_messages={BATCH})
print("ready", flush=True)
while True:
    batches = 0
    for batch in export_topic(run_here, request):
        batches += 1
        if batches == 4:
            break
    if not batches:
        break
    for day in compact_table(run_here, CompactionRequest(target, files_min=3)):
        print(day.files, flush=True)
"""


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_killed_exports_and_compactions_leave_each_row_once(tmp_path: Path, table_format: str) -> None:
    store, target = tmp_path / "store", tmp_path / "lake"
    geometry = StoreGeometry(segment_bytes=1 << 20, queue_file_bytes=20_000)
    with MessageStore.open(store, StoreConfig(geometry), lambda: 20_000 * DAY_MS) as writer:
        for _ in range(MESSAGES):
            writer.append(make_message("T", b"body"))
        writer.flush_log()
        writer.dispatch_once()
    seed = random.randrange(1 << 30)
    draw = random.Random(seed)
    command = [sys.executable, "-c", PROGRAM, str(store), str(target), table_format]
    compactions = 0
    for kill in range(KILLS + 1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            if kill < KILLS:
                time.sleep(draw.uniform(0.05, 1.0))
                process.kill()
            compactions += len(process.stdout.read().splitlines())
        # A process that was killed early has not created the table.
        rows = places(target, table_format) if any(target.glob(FIRST_COMMIT[table_format])) else []
        assert rows == [(0, number) for number in range(len(rows))], f"seed {seed}, kill {kill}"
    assert process.returncode == 0
    assert compactions > 0
    assert len(rows) == MESSAGES, f"seed {seed}"
    merged = {path.name for path in target.rglob("*compact-*") if "replaced" not in path.parts}
    assert all(name.startswith("compact-") for name in merged), f"seed {seed}: files of attempts stayed"
