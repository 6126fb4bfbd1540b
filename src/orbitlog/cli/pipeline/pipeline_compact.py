"""`orbitlog pipeline compact`: merges the small files of an exported table."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.job_options import JobProgress, master_option, spark_session
from orbitlog.cli.output.display_text import byte_count, counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.pipeline.lake_options import catalog_options, chosen_catalog, parse_location

if TYPE_CHECKING:
    from orbitlog.pipeline.export.compaction_job import CompactionRequest

_FIELDS = ("day", "files", "fileBytes", "newFiles", "newFileBytes", "messages", "seconds")
_TARGET_BYTES_MIN = 1024 * 1024
_TARGET_BYTES_DEFAULT = 128 * 1024 * 1024


def _days(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> frozenset[str] | None:
    try:
        return frozenset(date.fromisoformat(text).isoformat() for text in given) or None
    except ValueError:
        raise click.BadParameter("a day is YYYY-MM-DD, such as 2026-01-31", param=parameter) from None


@click.command("compact")
@click.argument("target", metavar="DIRECTORY", callback=parse_location)
@click.option("--day", "days", multiple=True, callback=_days, help="Compact only this day (YYYY-MM-DD); repeatable.")
@click.option(
    "--min-files",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Minimum number of small files that a day must have.",
)
@click.option(
    "--target-bytes",
    type=click.IntRange(min=_TARGET_BYTES_MIN),
    default=_TARGET_BYTES_DEFAULT,
    show_default=True,
    help="Maximum size of a merged file. Files below three quarters of it are small.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be merged, and change nothing.")
@click.option(
    "--delete-expired",
    "deletes_expired",
    is_flag=True,
    help="Then delete the replaced files whose retention, as the table defines it, has passed.",
)
@catalog_options
@master_option
@output_options
def command(
    *,
    target: Path | str,
    days: frozenset[str] | None,
    min_files: int,
    target_bytes: int,
    dry_run: bool,
    deletes_expired: bool,
    catalog_table: str | None,
    catalog_properties: tuple[tuple[str, str], ...],
    master: str,
    output: Output,
) -> None:
    """Merge the small files of a table that `pipeline export` wrote, one commit for each day.

    DIRECTORY is that of --to, or its URI. Readers find the old files or the new ones, and a kill at any point loses and
    repeats no row. Exports to Delta and Iceberg may run meanwhile; plain Parquet files need --follow --compact for
    that."""
    output.check(_FIELDS)
    if dry_run and deletes_expired:
        raise click.UsageError("--dry-run changes nothing; give it without --delete-expired")
    from orbitlog.pipeline.export.compaction_job import CompactionRequest

    catalog = chosen_catalog(catalog_table, catalog_properties)
    request = CompactionRequest(target, target_bytes, min_files, days, catalog)
    count = _show_plan(request, output) if dry_run else _compact(request, master, output)
    if output.is_table and not count:
        click.echo(f"nothing to merge: no day has {min_files} small files that fit into one")
    if deletes_expired:
        from orbitlog.pipeline.export.compaction_job import delete_expired

        click.echo(f"{counted(delete_expired(request), 'expired file')} deleted", err=True)


def _show_plan(request: CompactionRequest, output: Output) -> int:
    from orbitlog.pipeline.export.compaction_job import plan_compaction

    plans = plan_compaction(request)
    for plan in plans:
        _print_day(output, plan.day, len(plan.files), plan.size_bytes, len(plan.groups))
    return len(plans)


def _compact(request: CompactionRequest, master: str, output: Output) -> int:
    from orbitlog.pipeline.export.compaction_job import compact_table, plan_compaction
    from orbitlog.pipeline.runtime.spark_runner import runner

    if not plan_compaction(request):
        return 0  # known without Spark
    count = 0
    with spark_session(master, "compact", only_tasks=True) as spark, JobProgress() as progress:
        for day in compact_table(runner(spark), request, progress=progress):
            sizes = (day.files, day.file_bytes, day.new_files)
            _print_day(output, day.day, *sizes, day.new_bytes, day.messages, round(day.seconds, 3))
            count += 1
    return count


def _print_day(output: Output, *values: Any) -> None:
    day, files, size_bytes, new_files, *done = values
    if not output.is_table:
        padding = [None] * (len(_FIELDS) - len(values))
        output.write(_FIELDS, dict(zip(_FIELDS, (*values, *padding), strict=True)))
        return
    text = f"{day}: {counted(files, 'file')}, {byte_count(size_bytes)}"
    if not done:
        click.echo(f"{text}, would become {counted(new_files, 'file')}")
        return
    new_bytes, messages, seconds = done
    click.echo(
        f"{text}, merged into {counted(new_files, 'file')}, {byte_count(new_bytes)}"
        f" ({counted(messages, 'message')}, {seconds:.1f} s)"
    )
