"""`orbitlog pipeline rebuild`: ConsumeQueue, IndexFile and checkpoint of stores, made again from their logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.job_options import REBUILD_FIELDS, JobProgress, master_option, spark_session, split_option
from orbitlog.cli.output.display_text import byte_count
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, report_damage, settings_options, stores_argument

if TYPE_CHECKING:
    from orbitlog.jobs.rebuild.store_rebuild import StoreRebuild


@click.command("rebuild")
@stores_argument
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new directory for the derived files; of several stores each gets a directory in it.",
)
@click.option("--in-place", is_flag=True, help="Replace the derived files of the stores themselves; no broker may run.")
@click.option("--no-crc", is_flag=True, help="Trust the bodies of messages without looking at their checksums.")
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
    """Make queues, index and checkpoint again from the log.

    The files are byte for byte those that brokers write. They are made aside and take their place when all of them are
    complete; a run that was killed is taken up by the next one with the same arguments. A damaged log is reported, and
    nothing is made from it: exit code 1."""
    if (out is None) != in_place:
        raise click.UsageError("give either --out DIR or --in-place")
    output.check(REBUILD_FIELDS)
    settings = read_settings(config_path, assignments)
    from orbitlog.pipeline.rebuild import rebuild

    with spark_session(master, "rebuild", only_tasks=True) as spark, JobProgress() as progress:
        started_s = time.perf_counter()
        results = rebuild(
            spark,
            list(stores),
            out=out,
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
        return f"{result.out}: was rebuilt from {result.store} before, nothing to do"
    speed = byte_count(int(result.log_bytes / max(seconds, 0.001)))
    again = f", {result.resumed_splits} splits taken over from a run that was stopped" if result.resumed_splits else ""
    return (
        f"{result.out}: {result.messages} messages up to physical offset {result.log_end}:"
        f" {result.queue_files} files of {result.queues} queues, {result.keys} keys in {result.index_files} index files"
        f" ({seconds:.1f} s, {speed}/s{again})"
    )
