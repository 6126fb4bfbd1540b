"""The pipeline's jobs on Spark over a log of one segment, beside `cat`, and beside the same kernels in one process.

Each session runs in a process of its own, for a process has one Spark only; how long it took to start is a row of its
own and in none of the others. The output lies on the disk of the data directory, and is synced.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.make_log import make_segment
from benchmarks.measure import Figure, Report, best_of

ROUNDS = 4
CAT = shutil.which("cat") or "cat"


def run(report: Report, directory: Path, *, body_bytes: int, segment_bytes: int) -> None:
    root = directory / f"pipeline-{body_bytes}-{segment_bytes}"
    path = root / "commitlog" / f"{0:020d}"
    messages = make_segment(path, body_bytes=body_bytes, segment_bytes=segment_bytes)
    group = f"Spark, a log of {segment_bytes >> 20} MiB, {body_bytes} B bodies, warm page cache"

    def add(name: str, seconds: float) -> None:
        report.add(Figure(group, name, seconds, messages, segment_bytes))

    add("baseline: cat", best_of(lambda: subprocess.run([CAT, str(path)], stdout=subprocess.DEVNULL, check=True)))
    add("baseline: kernels in one process", measured(root, "kernels", ROUNDS)["rebuild"])
    for cores in (1, 2):
        found = measured(root, f"local[{cores}]", ROUNDS)
        add(f"session start, local[{cores}]", found["session"])
        add(f"rebuild queues and index, local[{cores}]", found["rebuild"])
        add(f"check with CRC, local[{cores}]", found["check"])


def measured(root: Path, where: str, rounds: int) -> dict[str, float]:
    """Run one kind of session in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_pipeline", str(root), where, str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    times: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return times


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
    times = {"session": time.perf_counter() - started}
    times |= _in_process(arguments) if spark is None else _on_spark(spark, arguments)
    print(json.dumps(times))


def _in_process(arguments: argparse.Namespace) -> dict[str, float]:
    """The files made by the same tasks, one after the other in this process."""
    from orbitlog.doctor.store_rebuild import rebuild_with
    from orbitlog.doctor.tasks_here import run_here
    from orbitlog.store.store_settings import StoreSettings

    out = arguments.root / "out"

    def work() -> None:
        shutil.rmtree(out, ignore_errors=True)
        rebuild_with(run_here, [arguments.root], out=out, settings=StoreSettings(), split_bytes=128 << 20)

    seconds = best_of(work, arguments.rounds)
    shutil.rmtree(out)
    return {"rebuild": seconds}


def _on_spark(spark: Any, arguments: argparse.Namespace) -> dict[str, float]:
    from orbitlog.pipeline.check import check
    from orbitlog.pipeline.rebuild import rebuild

    root = arguments.root
    out = root / "out"
    rounds = []
    for _ in range(arguments.rounds):
        shutil.rmtree(out, ignore_errors=True)
        started = time.perf_counter()
        (rebuilt,) = rebuild(spark, [root], out=out)
        rounds.append(time.perf_counter() - started)
        assert rebuilt.is_published, rebuilt.findings
    # A store of its own, with the log linked: the derived files are checked against it.
    (out / "commitlog").mkdir()
    (out / "commitlog" / f"{0:020d}").hardlink_to(root / "commitlog" / f"{0:020d}")
    checks = []
    for _ in range(arguments.rounds):
        started = time.perf_counter()
        (checked,) = check(spark, [out])
        checks.append(time.perf_counter() - started)
        assert checked.is_sound, checked.findings[:3]
    shutil.rmtree(out)
    spark.stop()
    return {"rebuild": min(rounds), "check": min(checks)}


if __name__ == "__main__":
    main()
