"""`orbitlog pipeline rebuild`: rebuilds ConsumeQueues, index and checkpoint of stores from their logs on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.job_options import (
    REBUILD_FIELDS,
    JobProgress,
    for_workers,
    master_option,
    spark_session,
    split_option,
)
from orbitlog.cli.output.display_text import byte_rate
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, report_damage, settings_options, stores_argument

if TYPE_CHECKING:
    from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild


@click.command("rebuild")
@stores_argument
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="New directory for the derived files; several stores get one subdirectory each.",
)
@click.option("--in-place", is_flag=True, help="Replace the derived files of the stores; no broker may be running.")
@click.option("--no-crc", is_flag=True, help="Do not verify the checksums of message bodies.")
@split_option
@master_option
@output_options
@settings_options
def command(
    *,
    stores: tuple[Path, ...],
    out: Path | None,
    in_place: bool,
    no_crc: bool,
    split_bytes: int,
    master: str,
    output: Output,
    config_path: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Rebuild queues, index and checkpoint from the log.

    The files are byte for byte those that brokers write. They are staged, and replace the old ones when all are
    complete; the next run with the same arguments resumes a killed one. A damaged log is reported with exit code 1, and
    nothing is rebuilt from it."""
    if (out is None) != in_place:
        raise click.UsageError("give either --out DIR or --in-place")
    output.check(REBUILD_FIELDS)
    settings = read_settings(config_path, assignments)
    from orbitlog.pipeline.rebuild import rebuild

    with spark_session(master, "rebuild", only_tasks=True) as spark, JobProgress() as progress:
        started_s = time.perf_counter()
        results = rebuild(
            spark,
            [for_workers(store) for store in stores],
            out=None if out is None else for_workers(out),
            settings=settings,
            split_bytes=split_bytes,
            check_crc=not no_crc,
            progress=progress,
        )
        seconds = time.perf_counter() - started_s
    for result in results:
        if not output.is_table:
            output.write(REBUILD_FIELDS, result.as_object() | {"seconds": round(seconds, 3)})
        elif result.is_published:
            click.echo(_sentence(result, seconds))
    report_damage([str(finding) for result in results for finding in result.findings])


def _sentence(result: StoreRebuild, seconds: float) -> str:
    if result.was_finished:
        return f"{result.out}: already rebuilt from {result.store}, nothing to do"
    speed = byte_rate(result.log_bytes, seconds)
    resumed = f", {result.resumed_splits} splits resumed from an earlier run" if result.resumed_splits else ""
    return (
        f"{result.out}: {result.messages} messages up to physical offset {result.log_end}:"
        f" {result.queue_files} files of {result.queues} queues, {result.keys} keys in {result.index_files} index files"
        f" ({seconds:.1f} s, {speed}{resumed})"
    )
