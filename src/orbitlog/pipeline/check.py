"""Store check on Spark: runs the tasks of `doctor.examination` in workers; the doctor makes the diagnosis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.doctor.examination import Examination, examine_with
from orbitlog.jobs.local_runner import PhaseProgress
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.pipeline.runtime.spark_runner import runner
from orbitlog.settings.store_settings import StoreSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(
    spark: SparkSession,
    roots: Sequence[Path],
    *,
    settings: StoreSettings | None = None,
    split_bytes: int = SPLIT_BYTES_DEFAULT,
    state: Path | None = None,
    progress: PhaseProgress | None = None,
) -> list[Examination]:
    """Check stores; return one examination each.

    `state` is a directory for finished task reports: a run after a kill skips the tasks it finds there.
    """
    return examine_with(
        runner(spark),
        roots,
        settings=settings or StoreSettings(),
        split_bytes=split_bytes,
        state=state,
        progress=progress,
    )
