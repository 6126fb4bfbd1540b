"""Rows of `make compare` without load: opening a killed store, rebuilding one, and commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.apache_rebuild import RULES_OF_5X, measure_apache_rebuild
from benchmarks.bench_pipeline import measured
from benchmarks.broker_pairs import VERSION, start_apache, start_orbitlog
from benchmarks.bulk_log import LogShape, write_log
from benchmarks.compare_record import OURS, THEIRS, Record
from benchmarks.compare_rows import Row
from benchmarks.measure import seconds_of
from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_elsewhere
from orbitlog.formats import store_tree as tree
from orbitlog.settings.store_settings import load_settings
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from tests.interop.harness.packages import apache_packages

_SPARK_ROUNDS = 2


def compare_commands(record: Record, *, rounds: int) -> None:
    """The same question by both command lines to the same broker."""
    row = Row("command line: list the topics", "seconds", 5.0)
    packages = apache_packages(VERSION)
    java = [str(packages.java), "-cp", packages.class_path, "org.apache.rocketmq.tools.command.MQAdminStartup"]
    ours = str(Path(sys.executable).with_name("orbitlog"))
    with tempfile.TemporaryDirectory(prefix="orbitlog-compare-") as directory:
        broker = start_orbitlog(Path(directory))
        try:
            asked = {
                THEIRS: [*java, "topicList", "-n", broker.name_server],
                OURS: [ours, "topic", "list", "-n", broker.name_server],
            }
            for _ in range(rounds):
                for name, command in asked.items():
                    record.add(row, name, seconds_of(lambda asked=command: _run(asked, Path(directory))))
        finally:
            broker.stop()
    print(record.line(row.name), flush=True)


def _run(command: list[str], directory: Path) -> None:
    subprocess.run(command, check=True, capture_output=True, cwd=directory, timeout=120)


def compare_stores(record: Record, *, gigabytes: float) -> None:
    """Open a store whose broker was killed, and rebuild queues and index of the same log."""
    shape = LogShape(count=int(gigabytes * 1e9) // LogShape(1, 1024).record_bytes, body_bytes=1024)
    with tempfile.TemporaryDirectory(prefix="orbitlog-compare-") as temporary:
        directory = Path(temporary)
        store = directory / THEIRS / "store"
        write_log(store, shape)
        _rebuild(record, store, directory, gigabytes)
        with MessageStore.open(store, StoreConfig(), lambda: time.time_ns() // 1_000_000):
            pass
        (directory / OURS).mkdir()
        # With its holes, and all on the disk: both brokers are to find the same.
        subprocess.run(["cp", "-r", "--sparse=always", str(store), str(directory / OURS / "store")], check=True)
        os.sync()
        _recover(record, directory, gigabytes)


def _recover(record: Record, directory: Path, gigabytes: float) -> None:
    row = Row(f"a store of {gigabytes:g} GB whose broker was killed: to the first acknowledged send", "seconds", 1.0)
    for name, start in ((THEIRS, start_apache), (OURS, start_orbitlog)):
        (directory / name / "store" / tree.ABORT).touch()
        broker = start(directory / name, ())
        record.add(row, name, broker.start_seconds)
        broker.stop()
    print(record.line(row.name), flush=True)


def _rebuild(record: Record, store: Path, scratch: Path, gigabytes: float) -> None:
    told = f"queues and index of {gigabytes:g} GB of 1 KB messages rebuilt by"
    rows = (
        Row(f"{told} the doctor", "seconds", 5.0),
        Row(f"{told} Spark on two cores, without its start", "seconds", 3.0),
    )
    rules = load_settings(None, RULES_OF_5X)
    for number in range(2):  # the first one loads the kernels
        aside = scratch / f"aside{number}"
        seconds = seconds_of(lambda aside=aside: rebuild_elsewhere(store, aside, RebuildWish(), rules))
        shutil.rmtree(aside)
    for row, ours in zip(rows, (seconds, measured(store, ["local[2]"], _SPARK_ROUNDS)[0].rebuild), strict=True):
        record.add(row, OURS, ours)
    theirs = measure_apache_rebuild(store, scratch).seconds
    for row in rows:
        record.add(row, THEIRS, theirs)
        print(record.line(row.name), flush=True)
