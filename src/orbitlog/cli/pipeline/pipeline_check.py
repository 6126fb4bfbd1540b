"""`orbitlog pipeline check`: verifies log, queues, index, checkpoint and config of stores on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.job_options import JobProgress, for_workers, master_option, spark_session, split_option
from orbitlog.cli.output.display_text import byte_rate
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, report_damage, settings_options, stores_argument, warn

if TYPE_CHECKING:
    from orbitlog.doctor.examination import Examination

CHECK_FIELDS = (
    *("store", "sound", "messages", "logBytes", "logEnd", "queues", "units", "indexFiles", "keys", "unitsBehind"),
    *("keysBehind", "findingCount", "findings", "seconds"),
)


@click.command("check")
@stores_argument
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for finished tasks, from which a killed run resumes.",
)
@split_option
@master_option
@output_options
@settings_options
def command(
    *,
    stores: tuple[Path, ...],
    state: Path | None,
    split_bytes: int,
    master: str,
    output: Output,
    config_path: Path | None,
    assignments: tuple[str, ...],
) -> None:
    """Verify whole stores: records, queues, index, checkpoint, config.

    Checks the magic, lengths, offset and checksum of each record, the order of every queue, each unit and index entry
    against the log, timer files, and missing or foreign files. Findings and exit code are those of `orbitlog doctor
    check`: problems are printed on stderr with file, byte, topic and queue, and the exit code is 1. Changes nothing."""
    output.check(CHECK_FIELDS)
    settings = read_settings(config_path, assignments)
    from orbitlog.pipeline.check import check

    with spark_session(master, "check", only_tasks=True) as spark, JobProgress() as progress:
        started_s = time.perf_counter()
        state = None if state is None else for_workers(state)
        given = [for_workers(store) for store in stores]
        results = check(spark, given, settings=settings, split_bytes=split_bytes, state=state, progress=progress)
        seconds = time.perf_counter() - started_s
    for result in results:
        if not output.is_table:
            output.write(CHECK_FIELDS, result.as_object() | {"seconds": round(seconds, 3)})
        else:
            click.echo(_sentence(result, seconds))
    unlisted = sum(result.unlisted_count for result in results)
    if unlisted:
        warn(f"{unlisted} more findings are not listed")
    report_damage([str(diagnosis) for result in results for diagnosis in result.problems])


def _sentence(examination: Examination, seconds: float) -> str:
    result = examination.check
    speed = byte_rate(result.log_bytes, seconds)
    count = len(examination.problems) + examination.unlisted_count
    verdict = "sound" if examination.is_sound else f"{count} findings"
    missing = ""
    if result.units_behind or result.keys_behind:
        missing = f"; {result.units_behind} units and {result.keys_behind} keys are not derived yet"
    return (
        f"{result.store}: {verdict}: {result.messages} messages up to physical offset {result.log_end},"
        f" {result.units} units of {result.queues} queues, {result.keys} keys in {result.index_files} index files"
        f"{missing} ({seconds:.1f} s, {speed})"
    )
