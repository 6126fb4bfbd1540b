"""The pipeline's jobs on Spark over a log, beside `cat`, the same kernels in one process, and a broker of Apache's.

Each session runs in a process of its own, for a process has one Spark only; how long it took to start is a row of its
own and in none of the others. The output lies on the disk of the data directory, and is synced. Memory is what driver,
JVM and the largest worker held of their own at most, in a round that is not timed. Of the quickest rebuild it is told
how long each of its two jobs took, how much of that its tasks computed, and what was left to the driver alone.
Apache's broker derives the same log (`benchmarks.apache_rebuild`).
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.apache_rebuild import RULES_OF_5X, measure_apache_rebuild
from benchmarks.bulk_log import LogShape, write_log
from benchmarks.make_log import make_segment
from benchmarks.measure import Figure, Reading, Report, best_of, seconds_of
from benchmarks.process_memory import MemoryWatch, spark_kind
from tests.interop.harness.packages import NotAvailable

ROUNDS = 6
CAT = shutil.which("cat") or "cat"


def run(report: Report, directory: Path, *, body_bytes: int, segment_bytes: int) -> None:
    root = directory / f"pipeline-{body_bytes}-{segment_bytes}"
    made = root.with_suffix(".log")
    messages = make_segment(made, body_bytes=body_bytes, segment_bytes=segment_bytes)
    path = root / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.hardlink_to(made)
    group = f"Spark, a log of {segment_bytes >> 20} MiB, {body_bytes} B bodies, warm page cache"
    log = Log(report, group, root, messages, segment_bytes)
    log.add("baseline: cat", best_of(lambda: subprocess.run([CAT, str(path)], stdout=subprocess.DEVNULL, check=True)))
    log.add("baseline: kernels in one process", measured(root, "kernels", ROUNDS)["rebuild"])
    try:
        theirs = measure_apache_rebuild(root, directory)
        log.add("baseline: an Apache broker rebuilds", theirs.seconds)
        log.add("an Apache broker rebuilds, with its start", theirs.seconds_with_start)
    except NotAvailable as reason:
        print(f"  no Apache broker beside ours: {reason}")
    one = log.jobs(1)
    two = log.jobs(2)
    ratio = one["rebuild"] / two["rebuild"]
    report.read(Reading(group, "rebuild, local[2] against local[1]", ratio, "times as fast (wanted: 1.6)"))


def run_large(report: Report, *, gigabytes: float, body_bytes: int = 200) -> None:
    """A log of many segments: what it takes, and that memory does not grow with it."""
    record_bytes = LogShape(1, body_bytes).record_bytes
    shape = LogShape(count=int(gigabytes * 1e9) // record_bytes, body_bytes=body_bytes)
    group = f"Spark, a log of {gigabytes:g} GB, {body_bytes} B bodies"
    with tempfile.TemporaryDirectory(prefix="orbitlog-bench-") as directory:
        root = Path(directory, "store")
        write_log(root, shape)
        log = Log(report, group, root, shape.count, shape.log_bytes)
        paths = [str(path) for path in sorted((root / "commitlog").iterdir())]
        log.add("baseline: cat", best_of(lambda: subprocess.run([CAT, *paths], stdout=subprocess.DEVNULL, check=True)))
        log.jobs(2, rounds=2)


@dataclass(frozen=True)
class Log:
    """A log that jobs work on, and where their figures go."""

    report: Report
    group: str
    root: Path
    messages: int
    size_bytes: int

    def add(self, name: str, seconds: float) -> None:
        self.report.add(Figure(self.group, name, seconds, self.messages, self.size_bytes))

    def jobs(self, cores: int, rounds: int = ROUNDS) -> dict[str, Any]:
        """Rebuild and check in a session of so many cores."""
        found = measured(self.root, f"local[{cores}]", rounds)
        self.report.read(Reading(self.group, f"session start, local[{cores}]", found["session"], "s"))
        self.add(f"rebuild queues and index, local[{cores}]", found["rebuild"])
        self.add(f"check with CRC, local[{cores}]", found["check"])
        for name, seconds in found["stages"].items():
            self.report.read(Reading(self.group, f"rebuild, local[{cores}]: {name}", seconds, "s"))
        for kind, most_mib in sorted(found["memory"].items()):
            self.report.read(Reading(self.group, f"most memory of {kind}, local[{cores}]", most_mib, "MiB"))
        return found


def measured(root: Path, where: str, rounds: int) -> dict[str, Any]:
    """Run one kind of session in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_pipeline", str(root), where, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("where")
    parser.add_argument("rounds", type=int)
    arguments = parser.parse_args()
    started = time.perf_counter()
    spark: Any = None
    if arguments.where != "kernels":
        from orbitlog.pipeline.session import build_session

        spark = build_session(arguments.where, app_name="orbitlog-bench")
        spark.range(1).count()
    found: dict[str, Any] = {"session": time.perf_counter() - started}
    found |= _in_process(arguments) if spark is None else _on_spark(spark, arguments)
    print(json.dumps(found))


def _in_process(arguments: argparse.Namespace) -> dict[str, float]:
    """The files made by the same tasks, one after the other in this process."""
    from orbitlog.doctor.store_rebuild import rebuild_with
    from orbitlog.doctor.tasks_here import run_here
    from orbitlog.store.store_settings import load_settings

    out, rules = arguments.root / "out", load_settings(None, RULES_OF_5X)

    def work() -> None:
        shutil.rmtree(out, ignore_errors=True)
        rebuild_with(run_here, [arguments.root], out=out, settings=rules, split_bytes=128 << 20)

    seconds = best_of(work, arguments.rounds)
    shutil.rmtree(out)
    return {"rebuild": seconds}


class Stages:
    """Runs the jobs of a rebuild as the command does, and notes what each took."""

    def __init__(self, spark: Any) -> None:
        from orbitlog.pipeline.task_run import runner

        self._run = runner(spark)
        self.seconds: dict[str, float] = {}

    def __call__(self, function: Any, tasks: Any, *, name: str, **more: Any) -> list[dict[str, Any]]:
        began = time.perf_counter()
        reports = self._run(functools.partial(computing, function), tasks, name=name, **more)
        took = time.perf_counter() - began
        self.seconds[f"{name.removeprefix('rebuild: ')}, the job"] = took
        self.seconds[f"{name.removeprefix('rebuild: ')}, computing"] = sum(report["computed_s"] for report in reports)
        return reports

    def of(self, total: float) -> dict[str, float]:
        """What it took, and what of the total was in no job."""
        jobs = sum(seconds for name, seconds in self.seconds.items() if name.endswith("the job"))
        return self.seconds | {"the driver alone": total - jobs}


def computing(function: Any, task: Any) -> dict[str, Any]:
    """Run a task, and add to its report the time of the processor that it took."""
    began = time.process_time()
    report: dict[str, Any] = function(task)
    return report | {"computed_s": time.process_time() - began}


def _on_spark(spark: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    from orbitlog.doctor.log_splits import SPLIT_BYTES_DEFAULT
    from orbitlog.doctor.store_rebuild import rebuild_with
    from orbitlog.pipeline.check import check
    from orbitlog.store.store_settings import load_settings

    root, rules = arguments.root, load_settings(None, RULES_OF_5X)
    out, stages = root / "out", Stages(spark)

    def rebuild_all() -> None:
        (rebuilt,) = rebuild_with(stages, [root], out=out, settings=rules, split_bytes=SPLIT_BYTES_DEFAULT)
        assert rebuilt.is_published, rebuilt.findings

    def check_all() -> None:
        (checked,) = check(spark, [out], settings=rules)
        assert checked.is_sound, checked.findings[:3]

    rounds = []
    for _ in range(arguments.rounds):
        shutil.rmtree(out, ignore_errors=True)
        seconds = seconds_of(rebuild_all)
        rounds.append((seconds, stages.of(seconds)))
    shutil.rmtree(out)
    with MemoryWatch(spark_kind) as watch:
        rebuild_all()
        # A store of its own, with the log linked: the derived files are checked against it.
        (out / "commitlog").mkdir()
        for segment in (root / "commitlog").iterdir():
            (out / "commitlog" / segment.name).hardlink_to(segment)
        check_all()
    checks = [seconds_of(check_all) for _ in range(arguments.rounds)]
    shutil.rmtree(out)
    spark.stop()
    quickest, its_stages = min(rounds, key=lambda found: found[0])
    return {"rebuild": quickest, "stages": its_stages, "check": min(checks), "memory": watch.most_mib}


if __name__ == "__main__":
    main()
