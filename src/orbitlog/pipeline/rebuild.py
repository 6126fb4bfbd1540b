"""Rebuild of derived files on Spark: runs the tasks of `jobs.rebuild.store_rebuild` in workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.jobs.local_runner import PhaseProgress
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild, rebuild_with
from orbitlog.pipeline.runtime.session import is_local
from orbitlog.pipeline.runtime.spark_runner import runner
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
    """Rebuild stores into `out`, or in place without `out`; several stores get one subdirectory of `out` each."""
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
    """Return the maximum number of tasks that may write one index file at the same time.

    Local mode allows one writer a core: Spark does not run a local task twice at once, and no task outlives its job.
    On a cluster, a worker that Spark gave up on may still be writing, so each file has one writer, under a temporary
    name until it is complete.
    """
    context = spark.sparkContext
    return context.defaultParallelism if is_local(context.master or "") else 1
