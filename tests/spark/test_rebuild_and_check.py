"""Rebuild and check on Spark, local and on a cluster: the files that others wrote, byte for byte."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbitlog.jobs.rebuild import index_tasks
from orbitlog.jobs.rebuild.index_tasks import IndexPiece
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.pipeline.check import check
from orbitlog.pipeline.rebuild import index_writers, rebuild
from orbitlog.pipeline.runtime.spark_runner import JobFailed, run_tasks
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.testing.golden import GoldenStore
from tests.spark.conftest import WORKER_HOSTS, Cluster, environment
from tests.spark.generated import derived_files, write_store


def live_files(golden: GoldenStore) -> dict[str, bytes]:
    files = derived_files(golden.store)
    del files["checkpoint"]  # a broker's has the times of its last flush
    return files


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("generated") / "store", messages=6000, seed=4)


@pytest.mark.parametrize("split_bytes", [64 * 1024, 128 * 1024 * 1024])
def test_both_goldens_in_one_job(
    spark: Any, golden_497: GoldenStore, golden_550_crash: GoldenStore, split_bytes: int, tmp_path: Path
) -> None:
    roots = [golden_497.copy_to(tmp_path / "a").store, golden_550_crash.copy_to(tmp_path / "b").store]
    told: list[tuple[str, int, int, int]] = []
    results = rebuild(
        spark, roots, out=tmp_path / "out", split_bytes=split_bytes, progress=lambda *values: told.append(values)
    )
    for golden, result in zip((golden_497, golden_550_crash), results, strict=True):
        assert result.findings == ()
        made = derived_files(Path(result.out))
        made.pop("checkpoint")
        assert made == live_files(golden)
    assert {phase for phase, *_ in told} == {"scanning", "building"}
    assert told[-1][1] == told[-1][2] > 0
    assert [found.problems for found in check(spark, roots, split_bytes=split_bytes)] == [[], []]


def test_what_the_plain_writer_derived(spark: Any, generated: Path, tmp_path: Path) -> None:
    (result,) = rebuild(spark, [generated], out=tmp_path / "out", split_bytes=64 * 1024)
    assert result.findings == ()
    assert derived_files(tmp_path / "out") == derived_files(generated)
    (checked,) = check(spark, [generated], split_bytes=64 * 1024)
    assert checked.is_sound
    assert (checked.check.messages, checked.check.keys) == (result.messages, result.keys)


def dying(function: Callable[[Any], dict[str, Any]], task: Any) -> dict[str, Any]:
    """Do the work of a task, and then die with its report, by an error or by kill -9, on all attempts but the last."""
    from pyspark import TaskContext

    report = function(task)
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() < 3 and not report.get("is_resumed"):
        if context.partitionId() % 2:
            raise OSError("the report is lost")
        os.kill(os.getpid(), signal.SIGKILL)
    return report


def test_tasks_that_die_after_their_work_are_run_again(spark: Any, generated: Path, tmp_path: Path) -> None:
    pieces: list[IndexPiece] = []

    def run(function: Any, tasks: Any, **more: Any) -> list[dict[str, Any]]:
        pieces.extend(task for task in tasks if isinstance(task, IndexPiece))
        return run_tasks(spark, functools.partial(dying, function), tasks, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_tasks, "_PIECE_KEYS_MIN", 100)
        patch.setattr(index_tasks, "_SLOT_COST", 0)
        (result,) = rebuild_with(
            run, [generated], out=tmp_path / "out", settings=StoreSettings(), split_bytes=128 * 1024, index_writers=20
        )
    assert result.findings == ()
    assert result.resumed_splits > 2, "no task found the work of an attempt that died"
    assert derived_files(tmp_path / "out") == derived_files(generated)
    assert pieces, "the index file was not written in pieces"


def test_only_cores_of_one_machine_write_one_index_file(spark: Any) -> None:
    assert index_writers(spark) == spark.sparkContext.defaultParallelism
    remote = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077", defaultParallelism=8))
    assert index_writers(remote) == 1  # type: ignore[arg-type]


def test_each_core_takes_the_next_task_when_it_is_through_with_one(spark: Any) -> None:
    def work(seconds: float) -> dict[str, Any]:
        time.sleep(seconds)
        return {"process": os.getpid()}

    reports = run_tasks(spark, work, [1.0, *[0.01] * 12], cost=lambda seconds: seconds)
    cores = spark.sparkContext.defaultParallelism
    assert len({report["process"] for report in reports}) <= cores
    others = {report["process"] for report in reports[1:]}
    assert cores == 1 or reports[0]["process"] not in others, "tasks waited behind the long one"


def test_reports_come_in_the_order_of_tasks_and_progress_is_their_sum(spark: Any) -> None:
    told: list[tuple[int, int]] = []
    reports = run_tasks(
        spark,
        lambda task: {"scanned_bytes": task, "messages": 1},
        list(range(11)),
        progress=lambda *sums: told.append(sums),
        cost=lambda task: float(task % 4),
    )
    assert [report["scanned_bytes"] for report in reports] == list(range(11))
    assert told[-1] == (55, 11)


def test_a_master_that_is_none_is_named_in_one_sentence(golden_497: GoldenStore) -> None:
    program = "from orbitlog.cli.main import main; main()"
    command = [sys.executable, "-c", program, "pipeline", "check", golden_497.store, "--master", "local[x]"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"orbitlog: Spark did not start: .*Could not parse Master URL: 'local\[x\]'\n", done.stderr)


def test_a_task_that_fails_for_good_ends_in_one_sentence(spark: Any) -> None:
    def fail(_: int) -> dict[str, Any]:
        raise ValueError("no such thing")

    with pytest.raises(JobFailed, match=r"^the Spark job 'trial' failed: ValueError: no such thing$"):
        run_tasks(spark, fail, [1], name="trial")


ON_THE_CLUSTER = """
import json, os, sys, time, uuid
from pathlib import Path
from orbitlog.pipeline.check import check
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.pipeline.runtime.session import build_session
from orbitlog.pipeline.runtime.spark_runner import run_tasks
from orbitlog.settings.store_settings import StoreSettings

def look(_):
    import orbitlog, orbitlog.errors
    return {"init": orbitlog.__file__, "errors": orbitlog.errors.__file__, "worker": os.getcwd()}

def run(function, tasks, **more):
    def unlucky(task):
        from pyspark import TaskContext
        context = TaskContext.get()
        number, is_first = context.partitionId(), context.attemptNumber() == 0
        name = getattr(function, "func", function).__name__  # a partial, with the disk
        Path(marks, f"{name}-{number}-{uuid.uuid4().hex}").touch()
        report = function(task)
        if is_first and name == "derive":
            if number == 1:
                raise OSError("the report is lost")
            if number == 0:
                time.sleep(30)  # slow: Spark runs it a second time elsewhere, at once
        return report
    return run_tasks(spark, unlucky, tasks, **more)

url, out, marks, *roots = sys.argv[1:]
speculation = {"interval": "50ms", "multiplier": "1.1", "quantile": "0.1", "minTaskRuntime": "10ms"}
settings = {f"spark.speculation.{name}": value for name, value in speculation.items()}
spark = build_session(url, settings={"spark.speculation": "true", **settings})
seen = run_tasks(spark, look, [1, 2, 3, 4])
split = {"split_bytes": 512 * 1024}
rebuilt = rebuild_with(run, [Path(root) for root in roots], out=Path(out), settings=StoreSettings(), **split)
checked = check(spark, [Path(root) for root in roots], **split)
print(json.dumps({"workers": seen, **{name: [each.as_object() for each in found]
    for name, found in (("rebuilt", rebuilt), ("checked", checked))}}))
spark.stop()
"""


def test_on_a_cluster(spark_cluster: Cluster, generated: Path, golden_497: GoldenStore, tmp_path: Path) -> None:
    """One application does everything, for it takes long to start on two cores; one task fails, one runs twice."""
    golden = golden_497.copy_to(tmp_path / "golden").store
    marks = tmp_path / "marks"
    marks.mkdir()
    command = [sys.executable, "-c", ON_THE_CLUSTER, spark_cluster.url, tmp_path / "out", marks, generated, golden]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(list(marks.glob("derive-1-*"))) >= 2, "no task was retried"
    if len(set(WORKER_HOSTS)) > 1:
        assert len(list(marks.glob("derive-0-*"))) >= 2, "no task was run twice at once"
    for report in found["workers"]:
        assert report["init"].startswith(report["worker"]), "the archive was not on the import path"
        assert not report["errors"].startswith(report["worker"]), "kernels would be compiled in every application"
    assert [result["findings"] for result in found["rebuilt"] + found["checked"]] == [[]] * 4
    assert derived_files(tmp_path / "out" / "store") == derived_files(generated)
    made = derived_files(tmp_path / "out" / "golden")
    made.pop("checkpoint")
    assert made == live_files(golden_497)
