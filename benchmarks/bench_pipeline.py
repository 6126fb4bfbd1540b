"""The pipeline's jobs on Spark over a log, beside `cat`, the same kernels in one process, and Apache's broker.

Each session runs in its own process, because a process has one Spark only; its start is a separate row. Sessions with
one core and with two alternate, so that both meet the same load; the fastest round of each counts, and the median pair
is reported beside it. The output is on the disk of the data directory, and is synced. It is emptied after its round,
and removed at the end: ext4 searches for inodes that were not freed in the last half minute, at a third of a
millisecond a file. Memory is the peak private memory of driver, JVM and the largest worker, in a round that is not
timed. For the fastest rebuild the report has the time of each of its two jobs, the CPU time of their tasks, and the
time of the driver alone. Apache's broker derives the same log (`benchmarks.apache_rebuild`).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.apache_rebuild import RULES_OF_5X, measure_apache_rebuild
from benchmarks.bulk_log import LogShape, write_log
from benchmarks.make_log import make_segment
from benchmarks.measure import Figure, Reading, Report, best_of, seconds_of
from benchmarks.process_memory import MemoryWatch, spark_kind
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.rebuild_publish import FINISHED
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.storefiles.findings import FindingKind
from tests.interop.harness.packages import NotAvailable

ROUNDS, CHECK_ROUNDS = 24, 6
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
    log.add("baseline: kernels in one process", kernels_alone(root, CHECK_ROUNDS))
    try:
        theirs = measure_apache_rebuild(root, directory)
        log.add("baseline: an Apache broker rebuilds", theirs.seconds)
        log.add("an Apache broker rebuilds, with its start", theirs.seconds_with_start)
    except NotAvailable as reason:
        print(f"  Apache's broker is not measured: {reason}")
    one, two = measured(root, ["local[1]", "local[2]"], ROUNDS)
    for cores, found in enumerate((one, two), 1):
        log.jobs(cores, found)
    pairs = statistics.median(a / b for a, b in zip(one.rebuilds, two.rebuilds, strict=True))
    unit = f"times as fast (wanted: 1.6; the middle one of {ROUNDS} pairs: {pairs:.2f})"
    ratio = one.rebuild / two.rebuild
    report.read(Reading(group, "rebuild, local[2] against local[1]", ratio, unit))


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
        log.jobs(2, measured(root, ["local[2]"], 2)[0])


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

    def jobs(self, cores: int, found: Measured) -> None:
        """Report rebuild and check in a session with `cores` cores."""
        self.report.read(Reading(self.group, f"session start, local[{cores}]", found.session, "s"))
        self.add(f"rebuild queues and index, local[{cores}]", found.rebuild)
        self.add(f"check with CRC, local[{cores}]", found.check)
        for name, seconds in found.stages.items():
            self.report.read(Reading(self.group, f"rebuild, local[{cores}]: {name}", seconds, "s"))
        for kind, most_mib in sorted(found.memory.items()):
            self.report.read(Reading(self.group, f"peak memory of {kind}, local[{cores}]", most_mib, "MiB"))


@dataclass
class Measured:
    """What one session took for its start, each rebuild, the stages of the quickest, the quickest check, and memory."""

    session: float
    rebuilds: list[float] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    check: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)

    @property
    def rebuild(self) -> float:
        return min(self.rebuilds)


def measured(root: Path, masters: Sequence[str], rounds: int) -> list[Measured]:
    """Run sessions beside each other, of which one works at a time."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(Session(root, master)) for master in masters]
        found = [Measured(session.answer()["session"]) for session in sessions]
        for _ in range(rounds):
            for session, its in zip(sessions, found, strict=True):
                answer = session.ask("rebuild")
                its.rebuilds.append(answer["seconds"])
                if its.rebuild == answer["seconds"]:
                    its.stages = answer["stages"]
        for session, its in zip(sessions, found, strict=True):
            its.memory = session.ask("memory")
            its.check = session.ask("check")["seconds"]
    return found


class Session:
    """A process with a session, which does what it is asked for; answers are lines of JSON."""

    def __init__(self, root: Path, master: str) -> None:
        command = [sys.executable, "-m", "benchmarks.bench_pipeline", str(root), master]
        self._said = tempfile.TemporaryFile("w+")
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, text=True)

    def ask(self, what: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(what, file=self._process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._said.seek(0)
            raise RuntimeError(self._said.read()[-2000:])
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._said.close()


class Outputs:
    """Directories for the output of rounds, one for each, all removed at the end."""

    def __init__(self, root: Path) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="out-", dir=root))
        self._count = 0

    @contextmanager
    def next(self) -> Iterator[Path]:
        """Yield the next path; its content is emptied after the block."""
        self._count += 1
        out = self._directory / str(self._count)
        yield out
        for path in out.rglob("*"):
            if path.is_file():
                os.truncate(path, 0)

    def remove(self) -> None:
        shutil.rmtree(self._directory)


def kernels_alone(root: Path, rounds: int) -> float:
    """The files made by the same tasks, one after the other in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_pipeline", str(root), "kernels", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("where")
    parser.add_argument("rounds", type=int, nargs="?", default=1)
    arguments = parser.parse_args()
    outputs = Outputs(arguments.root)
    try:
        if arguments.where == "kernels":
            print(_in_process(arguments.root, outputs, arguments.rounds))
        else:
            _serve(arguments.root, arguments.where, outputs)
    finally:
        outputs.remove()


def _in_process(root: Path, outputs: Outputs, rounds: int) -> float:
    from orbitlog.jobs.local_runner import run_here
    from orbitlog.settings.store_settings import load_settings

    rules = load_settings(None, RULES_OF_5X)
    found = []
    for _ in range(rounds):
        with outputs.next() as out:
            work = functools.partial(
                rebuild_with, run_here, [root], out=out, settings=rules, split_bytes=SPLIT_BYTES_DEFAULT
            )
            found.append(seconds_of(work))
    return min(found)


class Stages:
    """Runs the jobs of a rebuild as the command does, and notes what each took."""

    def __init__(self, spark: Any) -> None:
        from orbitlog.pipeline.runtime.spark_runner import runner

        self._run = runner(spark)
        self.seconds: dict[str, float] = {}

    def __call__(self, function: Any, tasks: Any, *, name: str, **more: Any) -> list[dict[str, Any]]:
        began = time.perf_counter()
        reports = self._run(functools.partial(computing, function), tasks, name=name, **more)
        took = time.perf_counter() - began
        self.seconds[f"{name.removeprefix('rebuild: ')}, the job"] = took
        self.seconds[f"{name.removeprefix('rebuild: ')}, CPU time"] = sum(report["computed_s"] for report in reports)
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


def _serve(root: Path, master: str, outputs: Outputs) -> None:
    """Start a session, and do what the lines of stdin ask for."""
    from orbitlog.pipeline.check import check
    from orbitlog.pipeline.rebuild import index_writers
    from orbitlog.pipeline.runtime.session import build_session
    from orbitlog.settings.store_settings import load_settings

    started = time.perf_counter()
    spark = build_session(master, app_name="orbitlog-bench", only_tasks=True)
    spark.range(1).count()
    print(json.dumps({"session": time.perf_counter() - started}), flush=True)
    rules, stages = load_settings(None, RULES_OF_5X), Stages(spark)

    def rebuild(out: Path) -> None:
        writers = index_writers(spark)
        (rebuilt,) = rebuild_with(
            stages, [root], out=out, settings=rules, split_bytes=SPLIT_BYTES_DEFAULT, index_writers=writers
        )
        assert rebuilt.is_published, rebuilt.findings

    def check_all(store: Path) -> None:
        (checked,) = check(spark, [store], settings=rules)
        # A log that was written without a broker has no tables.
        wrong = [finding for finding in checked.findings if finding.kind is not FindingKind.CONFIG]
        assert not wrong, wrong[:3]

    for line in sys.stdin:
        with outputs.next() as out:
            if line == "rebuild\n":
                seconds = seconds_of(lambda: rebuild(out))
                found: dict[str, Any] = {"seconds": seconds, "stages": stages.of(seconds)}
            elif line == "memory\n":
                with MemoryWatch(spark_kind) as watch:
                    rebuild(out)
                    check_all(with_log(out, root))
                found = watch.most_mib
            else:
                rebuild(out)
                store = with_log(out, root)
                found = {"seconds": best_of(lambda: check_all(store), CHECK_ROUNDS)}  # noqa: B023
            shutil.rmtree(out / "commitlog", ignore_errors=True)  # or the log itself would be emptied
        print(json.dumps(found), flush=True)
    spark.stop()


def with_log(out: Path, root: Path) -> Path:
    """Make a store of derived files: the log that they are checked against linked, the tables copied."""
    (out / "commitlog").mkdir()
    for segment in (root / "commitlog").iterdir():
        (out / "commitlog" / segment.name).hardlink_to(segment)
    if (root / "config").is_dir():
        shutil.copytree(root / "config", out / "config")
    (out / FINISHED).unlink(missing_ok=True)
    return out


if __name__ == "__main__":
    main()
