"""`orbitlog pipeline stats`: counts messages of stores, and shows the progress of their consumers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orbitlog.cli.job_options import JobProgress, master_option, spark_session, split_option
from orbitlog.cli.output.display_text import byte_count, byte_rate, counted, local_time, printable
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.pipeline.pipeline_options import log_path_options, name_given_stores

_TIMES = ("oldestTimestamp", "newestTimestamp", "nextDueTimestamp", "hour")
_SIZES = ("storedBytes", "bodyBytes", "bodyP50", "bodyP99")
_TITLES = {
    "brokerName": "store",
    "queueId": "queue",
    "storedBytes": "stored",
    "bodyBytes": "bodies",
    "bodyP50": "body p50",
    "bodyP99": "body p99",
    "messagesPerSecond": "per second",
    "oldestTimestamp": "oldest",
    "newestTimestamp": "newest",
    "nextDueTimestamp": "next due",
    "halfMessages": "half messages",
    "nextOffset": "next offset",
    "latestOffset": "latest offset",
}
_HEADINGS = {
    "topics": "topics",
    "queues": "queues",
    "tags": "tags",
    "hours": "hours in which messages were stored",
    "hosts": "producers by address",
    "lag": "consumer lag",
    "delays": "pending delayed messages by level",
    "transactions": "half messages",
    "retries": "messages in retry topics",
    "dead_letters": "dead letters",
}
_SHORT = ("topics", "lag", "delays", "transactions", "retries", "dead_letters")


@click.command("stats")
@click.argument("stores", metavar="STORE...", nargs=-1, required=True)
@click.option("--by", multiple=True, type=click.Choice(list(_HEADINGS)), help="Show only this table; may be repeated.")
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Show every table (queues, tags, hours and hosts can be long) and the rows of system topics and groups.",
)
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write a plot to this file (PNG).")
@click.option("--ignore-damage", is_flag=True, help="Skip the rest of a damaged segment instead of failing.")
@split_option
@master_option
@log_path_options
@output_options
def command(
    *,
    stores: tuple[str, ...],
    by: tuple[str, ...],
    show_all: bool,
    plot: Path | None,
    ignore_damage: bool,
    split_bytes: int,
    master: str,
    config_path: Path | None,
    assignments: tuple[str, ...],
    output: Output,
) -> None:
    """Count messages by topic, queue, tag, hour and producer; show lag, delays, transactions and dead letters.

    STORE is a broker's storePathRootDir, or name=PATH to name it. With --json each row of each table is one object
    with the table's name in `table`. Rows of system topics and groups are hidden unless --all."""
    from orbitlog.cli.user_names import user_rows
    from orbitlog.pipeline.runtime.spark_runner import runner
    from orbitlog.pipeline.stats.stats_job import store_statistics

    named = name_given_stores(stores, config_path, assignments)
    with spark_session(master, "stats", only_tasks=True) as spark, JobProgress() as progress:
        began_s = time.perf_counter()
        statistics = store_statistics(
            runner(spark), named, split_bytes=split_bytes, fail_on_damage=not ignore_damage, progress=progress
        )
        seconds = time.perf_counter() - began_s
    if plot is not None:
        from orbitlog.pipeline.stats.stats_plot import plot_statistics

        plot_statistics(statistics, plot)
    shown = by or (tuple(_HEADINGS) if show_all or output.as_json else _SHORT)
    tables = {name: statistics.tables[name] if show_all else user_rows(statistics.tables[name]) for name in shown}
    fields = dict.fromkeys(name for rows in tables.values() for row in rows[:1] for name in row)
    with output.writer(["table", *fields]) as writer:
        if not output.is_table:
            for table, rows in tables.items():
                for row in rows:
                    writer.line(json.dumps({"table": table, **row}, separators=(",", ":")))
        else:
            _write_tables(writer, tables)
            speed = byte_rate(statistics.log.log_bytes, seconds)
            total = f"{counted(statistics.log.messages, 'message')}, {byte_count(statistics.log.log_bytes)} of log"
            writer.line(f"{total} ({seconds:.1f} s, {speed})")


def _write_tables(writer: LineWriter, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    for name, rows in tables.items():
        if rows:
            writer.line(_HEADINGS[name])
            table = StreamTable(writer, [_column(title, rows[0][title]) for title in rows[0]])
            for row in rows:
                table.row([_cell(title, value) for title, value in row.items()])
            table.finish()
            writer.line("")


def _column(name: str, sample: Any) -> Column:
    is_number = not isinstance(sample, str) and name not in (*_TIMES, "tag", "host")
    dispensable = {"bodyBytes": 3, "oldestTimestamp": 2, "brokerName": 1}.get(name, 0)
    return Column(_TITLES.get(name, name), right=is_number, width_max=48, width_min=8, dispensable=dispensable)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name in _TIMES:
        return local_time(value)
    if name in _SIZES:
        return byte_count(value)
    return printable(str(value))
