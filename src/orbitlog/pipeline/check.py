"""Check whole stores on Spark: `doctor.store_check` with its tasks in workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbitlog.doctor.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.doctor.store_check import StoreCheck, check_with
from orbitlog.doctor.tasks_here import PhaseProgress
from orbitlog.pipeline.task_run import runner
from orbitlog.store.store_settings import StoreSettings

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
) -> list[StoreCheck]:
    """Check stores. With `state`, a directory of its own, a run that was killed is taken up by the next one."""
    return check_with(
        runner(spark),
        roots,
        settings=settings or StoreSettings(),
        split_bytes=split_bytes,
        state=state,
        progress=progress,
    )
