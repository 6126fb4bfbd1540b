"""kill -9 on drivers and workers at random times of rebuilds, dispatch and exports: nothing is lost or duplicated.

A few kills here; `make cluster` makes a hundred (ORBITLOG_KILLS), a good part of them on a cluster of a master and two
workers, where executors die as often as drivers and Python workers do. The seed is printed; ORBITLOG_SEED repeats its
choices, though not the machine's.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from orbitlog.formats.records.message import Message
from orbitlog.jobs.rebuild.rebuild_publish import STAGING
from orbitlog.pipeline.export.parquet_export import ParquetTable
from tests.spark.conftest import Cluster
from tests.spark.generated import derived_files, write_store
from tests.spark.killed_driver import ANSWERS_WITHIN_S, DRIVER, EXECUTOR, WORKER, Driver
from tests.spark.live_store import Writer, check_store, live_writer, messages_of

KILLS = int(os.environ.get("ORBITLOG_KILLS", "3"))
SEED = int(os.environ.get("ORBITLOG_SEED", str(random.SystemRandom().randrange(1 << 32))))
_MANY = 20
TOPIC = "Orders"
FORMATS = ("parquet", "delta", "iceberg")
_LOOK_S = 0.05


class Trial:
    """Jobs in turn on stores that must come out right, whatever is killed."""

    def __init__(self, directory: Path, writer: Writer, chance: random.Random, cluster: Cluster | None) -> None:
        self._directory, self._writer, self._chance, self._cluster = directory, writer, chance, cluster
        self._rebuilt = write_store(directory / "rebuilt", messages=4000, seed=SEED)
        self._expected = derived_files(self._rebuilt)
        self._driver: Driver | None = None
        self._longest_s = {"rebuild": 2.0, "dispatch": 2.0, "export": 2.0}
        self.kills: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()

    def turn(self, name: str, *, is_safe: bool = False) -> None:
        """Begin a job, and kill the driver or a worker somewhere in it, unless it is to end in peace."""
        if self._driver is None:
            # A quarter of all are to be executors, which only a cluster has.
            wants_cluster = self._chance.random() < 0.2 or 4 * self._killed(EXECUTOR) <= self.kills.total()
            cluster = self._cluster if wants_cluster else None
            self._driver = Driver("local[2]" if cluster is None else cluster.url, cluster)
        job = self._job(name, is_safe=is_safe)
        began_s = time.monotonic()
        self._driver.begin(job)
        within_s = ANSWERS_WITHIN_S if is_safe else self._chance.random() * self._longest_s[name]
        answer = self._driver.answer(within_s)
        if answer is None:
            answer = self._kill(name)
        if self._driver is not None:
            answer = answer or self._driver.answer(ANSWERS_WITHIN_S)
            assert answer == "done", f"{job}: {answer}; ORBITLOG_SEED={SEED}"
            self._longest_s[name] = time.monotonic() - began_s
            self.finished[name] += 1
            self._check(job)

    def _job(self, name: str, *, is_safe: bool) -> dict[str, Any]:
        if name == "rebuild":
            queue_files = sorted(path for path in (self._rebuilt / "consumequeue").rglob("*") if path.is_file())
            if queue_files and not (self._rebuilt / STAGING).exists():
                self._chance.choice(queue_files).write_bytes(b"not what it was")
            return {"job": name, "root": str(self._rebuilt)}
        if name == "dispatch":
            seconds = None if is_safe or self._chance.random() < 0.5 else 4 * self._chance.random()
            return {"job": name, "root": str(self._directory / "live"), "seconds": seconds}
        chosen = self._chance.choice(FORMATS)
        target = {"topic": TOPIC, "to": str(self._directory / chosen), "format": chosen}
        follow = self._chance.random() < 0.5
        return {"job": name, "root": str(self._directory / "live"), "follow": follow, **target}

    def _kill(self, name: str) -> str | None:
        """Kill something; returns the job's answer where the job ended before there was a worker to kill."""
        assert self._driver is not None
        victim = self._victim(name, self._driver)
        if victim == DRIVER or (self._cluster is None and not self._driver.find(victim)):
            self.end()
            self._count(name, DRIVER)
            return None
        for _ in range(int(ANSWERS_WITHIN_S / _LOOK_S)):
            if (answer := self._driver.answer(_LOOK_S)) is not None:
                return answer
            if found := self._driver.find(victim):
                try:
                    os.kill(self._chance.choice(found), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self._count(name, victim)
                break
        return None

    def _count(self, name: str, victim: str) -> None:
        self.kills[f"{name}: {victim}"] += 1
        print(f"{self.kills.total()}. {name}: {victim}", flush=True)

    def _victim(self, name: str, driver: Driver) -> str:
        """Choose what was killed least in such jobs, so that none of them is spared."""
        if self._cluster is None:
            return WORKER if self._chance.random() < 0.4 else DRIVER
        return min(driver.victims, key=lambda victim: self.kills[f"{name}: {victim}"])

    def _killed(self, victim: str) -> int:
        return sum(count for name, count in self.kills.items() if name.endswith(victim))

    def end(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def _check(self, job: dict[str, Any]) -> None:
        if job["job"] == "rebuild":
            assert derived_files(self._rebuilt) == self._expected, f"ORBITLOG_SEED={SEED}"
        elif job["job"] == "export":
            exported(Path(job["to"]), job["format"])

    def finish(self) -> None:
        """Let every job end by itself, and compare what there is with the log."""
        self._writer.ask("pause")
        self.turn("rebuild", is_safe=True)
        self.turn("dispatch", is_safe=True)
        ended = self._writer.ask("close")
        root = self._directory / "live"
        messages = [one for one in messages_of(root) if one.transaction_type.enters_queue]
        assert check_store(root) == ended["sent"] > 0
        assert ended["arrived"] == len(messages), "every message arrives once"
        for table_format in FORMATS:
            job = {"job": "export", "root": str(root), "topic": TOPIC, "follow": False, "format": table_format}
            self._begin_and_wait(job | {"to": str(self._directory / table_format)})
            compare(exported(self._directory / table_format, table_format), messages)
        self.end()

    def _begin_and_wait(self, job: dict[str, Any]) -> None:
        assert self._driver is not None
        self._driver.begin(job)
        assert self._driver.answer(ANSWERS_WITHIN_S) == "done"


def exported(target: Path, table_format: str) -> dict[tuple[int, int], int]:
    """Read a table with another's reader: the flag of each message by its place; none may be missing or there twice."""
    if table_format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(target).to_pyarrow_dataset().to_table(["queueId", "queueOffset", "flag"])
    elif table_format == "iceberg":
        from pyiceberg.table import StaticTable

        from orbitlog.pipeline.export.iceberg_export import latest_metadata

        table = StaticTable.from_metadata(str(latest_metadata(target))).scan().to_arrow()
    else:
        files = [str(path) for path in ParquetTable(target).files()]
        table = pyarrow.dataset.dataset(files, format="parquet").to_table(["queueId", "queueOffset", "flag"])
    rows = table.select(["queueId", "queueOffset", "flag"]).to_pylist()
    found = {(row["queueId"], row["queueOffset"]): row["flag"] for row in rows}
    assert len(found) == len(rows), f"messages are there twice; ORBITLOG_SEED={SEED}"
    counts = Counter(queue_id for queue_id, _ in found)
    assert all(found.keys() >= {(queue, each) for each in range(count)} for queue, count in counts.items()), SEED
    return found


def compare(found: dict[tuple[int, int], int], messages: list[Message]) -> None:
    expected = {(one.queue_id, one.queue_offset): one.flag for one in messages if one.topic == TOPIC}
    assert found == expected, f"ORBITLOG_SEED={SEED}"


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning")
def test_jobs_that_are_killed_again_and_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("workers are found below /proc")
    print(f"ORBITLOG_SEED={SEED} ORBITLOG_KILLS={KILLS}")
    chance = random.Random(SEED)
    cluster = request.getfixturevalue("spark_cluster") if KILLS >= _MANY else None
    with live_writer(tmp_path / "live", SEED, rate=100 if KILLS >= _MANY else 500) as writer:
        trial = Trial(tmp_path, writer, chance, cluster)
        try:
            writer.wait_until(lambda now: now["sent"] > 100, "messages")
            trial.turn("dispatch", is_safe=True)  # an export needs its topic
            while trial.kills.total() < KILLS:
                # Whatever was killed least: chance alone would leave one of them out in a short run.
                least = Counter({name: 0 for name in ("rebuild", "dispatch", "export")})
                least.update(Counter(name.partition(":")[0] for name in trial.kills.elements()))
                trial.turn(min(least, key=least.__getitem__))
            trial.finish()
        finally:
            trial.end()
    print(f"{trial.kills.total()} kills: {dict(trial.kills)}; jobs that ended by themselves: {dict(trial.finished)}")
