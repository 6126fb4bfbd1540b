"""The doctor over a log of one segment, on one core: check and rebuild beside `cat` and beside Apache's broker.

Bytes are those of the log. Both elapsed and CPU time are measured: CPU time changes less on a busy machine. Apache's
broker derives the same log with the same rules, once, in a JVM with all its compilers (`benchmarks.apache_rebuild`);
its rows are with and without its start. Each round has its own store with the log linked, and keeps it, emptied, until
the end (why: `benchmarks.bench_pipeline`).
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from benchmarks.apache_rebuild import RULES_OF_5X, measure_apache_rebuild
from benchmarks.bench_pipeline import Outputs, with_log
from benchmarks.make_log import make_segment
from benchmarks.measure import Figure, Report, best_of
from tests.interop.harness.packages import NotAvailable

T = TypeVar("T")

ROUNDS = 5
CAT = shutil.which("cat") or "cat"


def run(report: Report, directory: Path, *, body_bytes: int, segment_bytes: int) -> None:
    root = directory / f"doctor-{body_bytes}-{segment_bytes}"
    made = directory / f"doctor-{body_bytes}-{segment_bytes}.log"
    messages = make_segment(made, body_bytes=body_bytes, segment_bytes=segment_bytes)
    path = root / "commitlog" / f"{0:020d}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.hardlink_to(made)
    group = f"Doctor, a log of {segment_bytes >> 20} MiB, {body_bytes} B bodies, one process, warm page cache"

    def add(name: str, seconds: float) -> None:
        report.add(Figure(group, name, seconds, messages, segment_bytes))

    add("baseline: cat", best_of(lambda: subprocess.run([CAT, str(path)], stdout=subprocess.DEVNULL, check=True)))
    try:
        theirs = measure_apache_rebuild(root, directory)
        add("baseline: an Apache broker rebuilds", theirs.seconds)
        add("an Apache broker rebuilds, with its start", theirs.seconds_with_start)
    except NotAvailable as reason:
        print(f"  Apache's broker is not measured: {reason}")
    command = [sys.executable, "-m", "benchmarks.bench_doctor", str(root), str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    add("rebuild queues, index and checkpoint, synced", found["rebuild"])
    add("rebuild, CPU time", found["rebuild_processor"])
    add("check with CRC", found["check"])
    add("check with CRC, CPU time", found["check_processor"])
    shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("rounds", type=int)
    arguments = parser.parse_args()
    from orbitlog.doctor.examination import examine
    from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
    from orbitlog.settings.store_settings import load_settings

    rules = load_settings(None, RULES_OF_5X)
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], T]) -> T:
        started_s, processor_s = time.perf_counter(), time.process_time()
        done = work()
        times.setdefault(name, []).append(time.perf_counter() - started_s)
        times.setdefault(f"{name}_processor", []).append(time.process_time() - processor_s)
        return done

    outputs = Outputs(arguments.root)
    for _ in range(arguments.rounds):
        with outputs.next() as out:
            out.mkdir()
            store = with_log(out, arguments.root)
            rebuilt = timed("rebuild", functools.partial(rebuild_in_place, store, RebuildWish(), rules))
            assert rebuilt.is_published, rebuilt.findings
            found = timed("check", functools.partial(examine, store))
            assert found.is_sound, found.check.findings[:3]
            shutil.rmtree(out / "commitlog")  # or the log itself would be emptied
    outputs.remove()
    print(json.dumps({name: min(rounds) for name, rounds in times.items()}))


if __name__ == "__main__":
    main()
