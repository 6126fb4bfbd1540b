"""The doctor over a log of one segment, in one process and on one core, beside `cat`: rebuild and check.

Bytes are those of the log. Times are of the wall, and for the check of the processor, too: what it takes of a core does
not change on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.make_log import make_segment
from benchmarks.measure import Figure, Report, best_of

ROUNDS = 3
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
    command = [sys.executable, "-m", "benchmarks.bench_doctor", str(root), str(ROUNDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    add("rebuild queues, index and checkpoint, synced", found["rebuild"])
    add("check with CRC", found["check"])
    add("check with CRC, processor time", found["check_processor"])
    shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("rounds", type=int)
    arguments = parser.parse_args()
    from orbitlog.doctor.derived_rebuild import RebuildWish, rebuild_in_place
    from orbitlog.doctor.examination import examine
    from orbitlog.store.store_settings import StoreSettings

    rebuilds, checks, processor = [], [], []
    for _ in range(arguments.rounds):
        started_s = time.perf_counter()
        rebuilt = rebuild_in_place(arguments.root, RebuildWish(), StoreSettings(), discard_old=True)
        rebuilds.append(time.perf_counter() - started_s)
        assert rebuilt.is_published, rebuilt.findings
        started_s, processor_s = time.perf_counter(), time.process_time()
        found = examine(arguments.root)
        checks.append(time.perf_counter() - started_s)
        processor.append(time.process_time() - processor_s)
        assert found.check.is_sound, found.check.findings[:3]
    print(json.dumps({"rebuild": min(rebuilds), "check": min(checks), "check_processor": min(processor)}))


if __name__ == "__main__":
    main()
