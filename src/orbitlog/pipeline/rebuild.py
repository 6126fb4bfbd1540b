"""Rebuild the derived files of whole stores on Spark: `jobs.rebuild.store_rebuild` with its tasks in workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.jobs.local_runner import PhaseProgress
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild, rebuild_with
from orbitlog.pipeline.runtime.session import is_local
from orbitlog.pipeline.runtime.task_run import runner
from orbitlog.settings.store_settings import StoreSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    spark: SparkSession,
    roots: Sequence[Path],
    *,
    out: Path | None,
    settings: StoreSettings | None = None,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    check_crc: bool = True,
    progress: PhaseProgress | None = None,
) -> list[StoreRebuild]:
    """Rebuild stores, each into `out` (of several: into a directory of its name in it), or in place without `out`."""
    return rebuild_with(
        runner(spark),
        roots,
        out=out,
        settings=settings or StoreSettings(),
        split_bytes=split_bytes,
        check_crc=check_crc,
        index_writers=index_writers(spark),
        progress=progress,
    )


def index_writers(spark: SparkSession) -> int:
    """Return how many tasks may write one index file.

    In local mode: one for each core, for tasks there are neither tried twice at once nor survive the job that they
    are of. On a cluster a worker that was given up may still be writing: every file has one writer, and a name of its
    own until it is whole.
    """
    context = spark.sparkContext
    return context.defaultParallelism if is_local(context.master or "") else 1
