"""`orbitlog pipeline export`: exports a topic as a Parquet, Delta or Iceberg table, each message exactly once."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.job_options import JobProgress, master_option, spark_session
from orbitlog.cli.output.display_text import byte_count, byte_rate, counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.pipeline.lake_options import catalog_options, chosen_catalog, parse_location
from orbitlog.cli.pipeline.pipeline_options import (
    chosen_cluster,
    cluster_options,
    log_path_options,
    name_given_stores,
    stop_event,
)

if TYPE_CHECKING:
    from orbitlog.pipeline.export.export_job import ExportedBatch

_NOW = "available-now"
_FIELDS = ("batch", "messages", "recordBytes", "files", "fileBytes", "nextOffsets", "seconds")
_FORMATS = ("parquet", "delta", "iceberg")
_TRIGGER = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*(ms|s|m|h)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def _seconds(_: click.Context, parameter: click.Parameter, text: str) -> float | None:
    if text.strip() == _NOW:
        return None
    match = _TRIGGER.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is neither {_NOW} nor a time such as 500ms, 10s or 1m", param=parameter)
    return float(match[1]) * _SECONDS[match[2]]


def _check_format(table_format: str, table: str | None, properties: tuple[tuple[str, str], ...]) -> None:
    if table_format != "iceberg" and (table is not None or properties):
        raise click.UsageError("--catalog and --catalog-table are for --format iceberg")


def _check_compaction(*, is_compacted: bool, is_followed: bool) -> None:
    if is_compacted and not is_followed:
        raise click.UsageError("--compact is for --follow; run `orbitlog pipeline compact` after an export")


@click.command("export")
@click.argument("stores", metavar="[STORE...]", nargs=-1)
@click.option("--topic", required=True, help="Topic to export.")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DIRECTORY",
    callback=parse_location,
    help="Directory of the table, or its URI on an object store: s3://BUCKET/PATH.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(_FORMATS),
    default="parquet",
    show_default=True,
    help="Table format: plain Parquet files, Delta or Iceberg.",
)
@catalog_options
@click.option(
    "--json-schema", metavar="COLUMNS", help="Split JSON bodies into columns: `id bigint, price double, note string`."
)
@click.option(
    "--starting",
    default="earliest",
    show_default=True,
    help="Start of a new export: earliest, latest, or JSON offsets.",
)
@click.option("--follow", is_flag=True, help="Continue with new messages, as a streaming query, until stopped.")
@click.option(
    "--trigger",
    "trigger_s",
    callback=_seconds,
    default="10s",
    show_default=True,
    help=f"Poll interval of --follow; with {_NOW} the query ends when all current messages are exported.",
)
@click.option(
    "--compact",
    "is_compacted",
    is_flag=True,
    help="With --follow: merge the small files of a day between two batches, once there are --compact-files.",
)
@click.option(
    "--compact-files",
    type=click.IntRange(min=2),
    default=100,
    show_default=True,
    help="Number of small files of a day at which --compact merges them.",
)
@click.option(
    "--batch-messages",
    type=click.IntRange(min=1),
    default=4_000_000,
    show_default=True,
    help="Approximate number of messages per commit.",
)
@click.option("--ignore-loss", is_flag=True, help="Skip messages that were deleted or are damaged, instead of failing.")
@master_option
@cluster_options
@log_path_options
@partial(output_options, format_names=("-f", "--row-format"))  # --format selects the table format
def command(
    *,
    stores: tuple[str, ...],
    topic: str,
    target: Path | str,
    table_format: str,
    catalog_table: str | None,
    catalog_properties: tuple[tuple[str, str], ...],
    json_schema: str | None,
    starting: str,
    follow: bool,
    trigger_s: float | None,
    is_compacted: bool,
    compact_files: int,
    batch_messages: int,
    ignore_loss: bool,
    master: str,
    address: str | None,
    context_name: str | None,
    uses_tls: bool,
    config_path: Path | None,
    assignments: tuple[str, ...],
    output: Output,
) -> None:
    """Export a topic as a table partitioned by day, each message exactly once.

    A second run adds new messages; after a kill at any point, the next run resumes at the table's last batch. STORE is
    a broker's storePathRootDir, or name=PATH to name it. With --name-server or --context messages are pulled from the
    brokers of a cluster instead."""
    output.check(_FIELDS)
    cluster = chosen_cluster(address, context_name, uses_tls=uses_tls)
    if (cluster is None) != bool(stores):
        raise click.UsageError("give the directories of stores, or a cluster with --name-server, but not both")
    _check_format(table_format, catalog_table, catalog_properties)
    _check_compaction(is_compacted=is_compacted, is_followed=follow)
    from orbitlog.pipeline.export.export_job import ExportRequest, export_topic
    from orbitlog.pipeline.export.export_stream import ExportQuery
    from orbitlog.pipeline.runtime.spark_runner import runner
    from orbitlog.pipeline.sources.json_columns import parse_json_columns

    request = ExportRequest(
        stores=name_given_stores(stores, config_path, assignments) if stores else (),
        topic=topic,
        target=target,
        table_format=table_format,
        json_columns=None if json_schema is None else parse_json_columns(json_schema),
        starting=starting,
        batch_messages=batch_messages,
        fail_on_data_loss=not ignore_loss,
        cluster=cluster,
        catalog=chosen_catalog(catalog_table, catalog_properties),
    )
    messages = 0

    def on_batch(batch: ExportedBatch) -> None:
        nonlocal messages
        messages += batch.messages
        _print_batch(batch, output)

    with spark_session(master, "export", only_tasks=not follow) as spark:
        if follow:
            query = ExportQuery(
                spark,
                request,
                on_batch=on_batch,
                on_restart=lambda sentence: click.echo(sentence, err=True),
                compact_files=compact_files if is_compacted else None,
            )
            query.run(stop_event(), trigger_s=trigger_s)
        else:
            with JobProgress() as progress:
                for batch in export_topic(runner(spark), request, progress=progress):
                    on_batch(batch)
    if output.is_table:
        click.echo(f"{counted(messages, 'message')} added to {target}")


def _print_batch(batch: ExportedBatch, output: Output) -> None:
    if not output.is_table:
        sizes = (batch.number, batch.messages, batch.scanned_bytes, batch.files, batch.file_bytes)
        values = (*sizes, batch.end, round(batch.seconds, 3))
        output.write(_FIELDS, dict(zip(_FIELDS, values, strict=True)))
        return
    speed = byte_rate(batch.scanned_bytes, batch.seconds)
    click.echo(
        f"batch {batch.number}: {counted(batch.messages, 'message')} in {counted(batch.files, 'file')},"
        f" {byte_count(batch.file_bytes)} ({batch.seconds:.1f} s, {speed})"
    )
