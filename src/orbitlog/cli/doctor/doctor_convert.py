"""`orbitlog doctor convert`: a DLedger or RocksDB store as an ordinary store in a new directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from orbitlog.cli.job_options import JobProgress
from orbitlog.cli.output.display_text import counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.store_options import read_settings, settings_options, store_argument

_FIELDS = (
    *("store", "out", "kinds", "dryRun", "messages", "logStart", "logEnd", "uncommitted", "tornAt", "queues"),
    *("expiredQueues", "keys", "timerUnits", "tables", "notes"),
)


@click.command("convert")
@store_argument
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the new store. It must not exist; its parent must.",
)
@click.option("--dry-run", is_flag=True, help="Read the whole log and report what would be converted.")
@click.option(
    "--accept-uncommitted",
    is_flag=True,
    help="Also convert entries after the committed index, which the group may never have agreed upon.",
)
@output_options
@settings_options
def command(*, store: Path, out: Path, dry_run: bool, accept_uncommitted: bool, output: Output, **options: Any) -> None:
    """Convert a DLedger or RocksDB store into an ordinary store.

    Topics, queue ids, queue offsets, store times, keys, properties and all tables stay the same; physical offsets and
    offset message ids change. The source is only read. An interrupted run is continued by the same command."""
    output.check(_FIELDS)
    settings = read_settings(options["config_path"], options["assignments"])
    from orbitlog.doctor.convert.store_convert import convert_store

    with JobProgress() as progress:
        result = convert_store(
            store, out, settings, accept_uncommitted=accept_uncommitted, dry_run=dry_run, progress=progress
        )
    if not output.is_table:
        output.write(_FIELDS, result.as_object())
        return
    verb = "would be converted" if dry_run else "converted"
    kinds = ", ".join(result.kinds)
    records = counted(result.records, "message")
    click.echo(f"{store} ({kinds}): {records} up to physical offset {result.log_end} {verb} to {out}")
    if not dry_run:
        click.echo(f"{counted(result.queues + result.expired_queues, 'queue')}, {counted(len(result.tables), 'table')}")
    for note in result.notes:
        click.echo(f"note: {note}")
