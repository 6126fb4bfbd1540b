"""The data sources and the jobs over them on Spark, over logs of one segment, beside `cat` of the same file.

The session runs in its own process; its start is a separate row. One topic of sixteen
is read through its queues, whose figures count its own records only; the topic that is exported fills a log alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.make_log import TOPICS, make_segment
from benchmarks.measure import Figure, Reading, Report, best_of

ROUNDS = 4
CAT = shutil.which("cat") or "cat"
TOPIC = "TopicOrderEvents00"
# Columns that every message has are NOT NULL, as docs/spark.md advises.
SLIM = (
    "commitLogOffset bigint NOT NULL, storeSize int NOT NULL, topic string NOT NULL, queueId int NOT NULL,"
    " queueOffset bigint NOT NULL, sysFlag int NOT NULL, storeTimestamp timestamp NOT NULL, bodyCRC int NOT NULL"
)
FULL = (
    "topic string NOT NULL, queueId int NOT NULL, queueOffset bigint NOT NULL, body binary NOT NULL, tags string,"
    " keys string, uniqKey string, flag int NOT NULL, sysFlag int NOT NULL, bornTimestamp timestamp NOT NULL,"
    " storeTimestamp timestamp NOT NULL, reconsumeTimes int NOT NULL, commitLogOffset bigint NOT NULL,"
    " storeSize int NOT NULL"
)


def run(report: Report, directory: Path, *, body_bytes: int, segment_bytes: int) -> None:
    root = directory / f"sources-{body_bytes}-{segment_bytes}"
    messages = _log(root, body_bytes, segment_bytes, TOPICS)
    _log(_one_topic(root), body_bytes, segment_bytes, 1)
    path = root / "commitlog" / f"{0:020d}"
    group = f"Spark sources, a log of {segment_bytes >> 20} MiB, {body_bytes} B bodies, local[2], warm page cache"
    seconds = best_of(lambda: subprocess.run([CAT, str(path)], stdout=subprocess.DEVNULL, check=True))
    report.add(Figure(group, "baseline: cat", seconds, messages, segment_bytes))
    command = [sys.executable, "-m", "benchmarks.bench_sources", str(root), str(messages), str(segment_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    report.read(Reading(group, "session start", found["session"], "s"))
    for name, seconds, count, size_bytes in found["rows"]:
        report.add(Figure(group, name, seconds, count, size_bytes))


def _one_topic(root: Path) -> Path:
    return root.with_name(root.name + "-one-topic")


def _log(root: Path, body_bytes: int, segment_bytes: int, topics: int) -> int:
    made = root.with_name(root.name + ".log")
    messages = make_segment(made, body_bytes=body_bytes, segment_bytes=segment_bytes, topics=topics)
    path = root / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.hardlink_to(made)
    return messages


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("messages", type=int)
    parser.add_argument("segment_bytes", type=int)
    arguments = parser.parse_args()
    from orbitlog.pipeline.runtime.session import build_session

    started = time.perf_counter()
    spark = build_session("local[2]", app_name="orbitlog-bench")
    spark.range(1).count()
    session, rows = time.perf_counter() - started, []
    for name, work, messages, size_bytes in _jobs(spark, arguments.root, arguments.messages, arguments.segment_bytes):
        work()
        rows.append((name, best_of(work, ROUNDS), messages, size_bytes))
    spark.stop()
    print(json.dumps({"session": session, "rows": rows}))


def _jobs(
    spark: Any, root: Path, messages: int, segment_bytes: int
) -> list[tuple[str, Callable[[], object], int, int]]:
    from orbitlog.pipeline.runtime.spark_runner import runner
    from orbitlog.pipeline.sources.broker_stores import parse_store_paths
    from orbitlog.pipeline.stats.log_stats import count_logs

    store, one_topic = _derived(spark, root), _derived(spark, _one_topic(root))
    stores = parse_store_paths(f"b={store}")
    exported = parse_store_paths(f"b={one_topic}")

    def scan(schema: str) -> None:
        frame = spark.read.format("rocketmq-commitlog").schema(schema).load(str(store))
        frame.write.format("noop").mode("overwrite").save()

    def topic_scan() -> None:
        frame = spark.read.format("rocketmq").schema(FULL).option("subscribe", TOPIC).load(str(store))
        frame.write.format("noop").mode("overwrite").save()

    totals = count_logs(runner(spark), stores).groups["topic", "b", TOPIC, None]
    topic = totals.messages, totals.stored_bytes
    whole = count_logs(runner(spark), exported).groups["topic", "b", TOPIC, None]
    return [
        ("log source, narrow: 8 columns", lambda: scan(SLIM), messages, segment_bytes),
        ("log source, full: 14 columns with body", lambda: scan(FULL), messages, segment_bytes),
        ("topic source, full", topic_scan, *topic),
        ("statistics", lambda: count_logs(runner(spark), stores), messages, segment_bytes),
        (
            "export of a topic that fills its log to Parquet",
            lambda: _export(spark, exported, store.with_name("exported")),
            whole.messages,
            whole.stored_bytes,
        ),
    ]


def _derived(spark: Any, root: Path) -> Path:
    """Return the store of a log, with everything derived."""
    from orbitlog.pipeline.rebuild import rebuild

    store = root.with_name(root.name + "-store")
    if not (store / "consumequeue").exists():
        shutil.rmtree(store, ignore_errors=True)
        rebuild(spark, [root], out=store)
        (store / "commitlog").mkdir()
        (store / "commitlog" / f"{0:020d}").hardlink_to(root / "commitlog" / f"{0:020d}")
    return store


def _export(spark: Any, stores: Any, target: Path) -> None:
    from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
    from orbitlog.pipeline.runtime.spark_runner import runner

    shutil.rmtree(target, ignore_errors=True)
    for _ in export_topic(runner(spark), ExportRequest(stores, TOPIC, target)):
        pass


if __name__ == "__main__":
    main()
