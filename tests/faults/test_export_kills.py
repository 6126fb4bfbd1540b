"""kill -9 on drivers of an export at random times: in the end the table contains every message exactly once.

Two kills a format here; `make faults` makes many more. The seed is printed, and ORBITLOG_SEED repeats it.
"""

from __future__ import annotations

import os
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

KILLS = 2 * int(os.environ.get("ORBITLOG_FAULTS", "1"))
SEED = int(os.environ.get("ORBITLOG_SEED", str(random.SystemRandom().randrange(1 << 32))))
MESSAGES = 600
_WAIT_S = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("exported") / "store"
    clock = [20_000 * 86_400_000]

    def now_ms() -> int:
        clock[0] += 1_000_000  # days go by while messages come
        return clock[0]

    with MessageStore.open(root, StoreConfig(StoreGeometry(65536, 2000)), now_ms) as opened:
        for number in range(MESSAGES):
            opened.append(make_message("T", b"body %d" % number, queue_id=number % 3))
        opened.flush_log()
        opened.dispatch_once()
    return root


def start(store: Path, target: Path, table_format: str) -> subprocess.Popen[str]:
    driver = Path(__file__).with_name("export_driver.py")
    command = [sys.executable, str(driver), str(store), "T", str(target), table_format, "40"]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout is not None
    if job.stdout.readline() != "ready\n":
        raise AssertionError(job.communicate()[1])
    return job


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_an_export_whose_driver_is_killed_again_and_again(store: Path, tmp_path: Path, table_format: str) -> None:
    print(f"ORBITLOG_SEED={SEED}")
    chance = random.Random(f"{SEED} {table_format}")
    target = tmp_path / "table"
    killed = 0
    for _ in range(KILLS):
        with start(store, target, table_format) as job:
            time.sleep(chance.random() * chance.choice((0.3, 2.0)))
            killed += job.poll() is None
            job.kill()
    with start(store, target, table_format) as job:
        _, said = job.communicate(timeout=_WAIT_S)
        assert job.returncode == 0, said
    expected = [(queue_id, number) for queue_id in range(3) for number in range(MESSAGES // 3)]
    assert places(target, table_format) == expected, f"ORBITLOG_SEED={SEED}, {killed} kills"
    print(f"{killed} of {KILLS} drivers were at work when they were killed")
