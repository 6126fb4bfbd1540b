"""`orbitlog pipeline query`: finds messages of stores by topic, key, time and content, or with SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from orbitlog.cli.contexts import choose_cluster
from orbitlog.cli.job_options import master_option, spark_session
from orbitlog.cli.main import Problem
from orbitlog.cli.output.display_text import body_preview, byte_count, counted, local_time, printable
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.cli.pipeline.lake_options import parse_new_location
from orbitlog.cli.pipeline.pipeline_options import (
    cluster_options,
    log_path_options,
    name_given_stores,
    parse_time,
    source_options_of,
)

_SHOWN = ("topic", "queueId", "queueOffset", "tags", "keys", "storeTimestamp", "bornHost", "body")
_ERROR_CHARACTERS_MAX = 300

# Frames and rows are `Any` here: only the pipeline knows Spark's types.


@click.command("query")
@click.argument("stores", metavar="[STORE...]", nargs=-1)
@click.option("--sql", help="SQL over the view `messages`: select topic, count(*) from messages group by 1.")
@click.option("--restricted", is_flag=True, help="Refuse SQL that does more than read the view `messages`.")
@click.option("--topic", help="Only this topic, read through its queues; needed for a cluster.")
@click.option("--key", help="Only messages with this key or unique key.")
@click.option(
    "--from", "from_ms", callback=parse_time, metavar="TIME", help="Only messages stored at or after this time."
)
@click.option("--to", "to_ms", callback=parse_time, metavar="TIME", help="Only messages stored before this time.")
@click.option("--contains", metavar="TEXT", help="Only messages whose body contains this text.")
@click.option("--limit", type=click.IntRange(min=0), help="Maximum number of rows.")
@click.option(
    "--out",
    metavar="DIRECTORY",
    callback=parse_new_location,
    help="Write the rows as Parquet into this new directory, or its URI: s3a://BUCKET/PATH (needs hadoop-aws).",
)
@cluster_options
@master_option
@log_path_options
@output_options
def command(
    *,
    stores: tuple[str, ...],
    sql: str | None,
    restricted: bool,
    topic: str | None,
    key: str | None,
    from_ms: int | None,
    to_ms: int | None,
    contains: str | None,
    limit: int | None,
    out: Path | str | None,
    address: str | None,
    context_name: str | None,
    uses_tls: bool,
    master: str,
    config_path: Path | None,
    assignments: tuple[str, ...],
    output: Output,
) -> None:
    """Find messages by topic, key, time or content, or with SQL.

    STORE is a broker's storePathRootDir, or name=PATH to name it. With --name-server or --context, --topic is read from
    that cluster instead. Times are ISO 8601 (UTC) or milliseconds."""
    from orbitlog.pipeline.export.hadoop_s3a import spark_location
    from orbitlog.pipeline.sources.message_query import MessageFilter, as_json_rows, messages_frame, query_sql

    cluster = _cluster(address, context_name, uses_tls=uses_tls, topic=topic)
    if bool(stores) == (cluster is not None):
        raise click.UsageError("give stores, or a cluster with --name-server or --context and its --topic")
    named = name_given_stores(stores, config_path, assignments) if stores else ()
    wanted = MessageFilter(topic, key, from_ms, to_ms, contains)
    with spark_session(master, "query") as spark, _SparkErrors():
        out_location = "" if out is None else spark_location(spark, str(out))
        if sql is not None:
            frame = query_sql(spark, named, sql, wanted, cluster=cluster, is_restricted=restricted)
        elif not output.is_table or out is not None:
            frame = messages_frame(spark, named, wanted, cluster=cluster)
        else:
            frame = messages_frame(spark, named, wanted, _SHOWN, cluster)
        if limit is not None:
            frame = frame.limit(limit)
        if out is not None:
            frame.write.parquet(out_location)
        elif not output.is_table:
            _write_json(frame if sql is not None else as_json_rows(frame), output)
        elif sql is not None:
            _write_rows(frame)
        else:
            _write_messages(frame)


def _cluster(
    address: str | None, context_name: str | None, *, uses_tls: bool, topic: str | None
) -> dict[str, str] | None:
    """Return the source options of the cluster that is given; None if none is."""
    if address is None and context_name is None:
        return None
    if topic is None:
        raise click.UsageError("a query over a cluster needs --topic")
    return source_options_of(choose_cluster(address, context_name, uses_tls=uses_tls))


class _SparkErrors:
    """Turns an exception of Spark into one sentence: the line with the cause."""

    def __enter__(self) -> None:
        from orbitlog.pipeline.runtime.spark_errors import silence_sql_errors

        silence_sql_errors()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or not type(error).__module__.startswith(("pyspark", "py4j")):
            return
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        causes = [line.partition(": ")[2] for line in lines if line.startswith("orbitlog.")]
        raise Problem((causes or lines or [str(kind)])[0][:_ERROR_CHARACTERS_MAX]) from error


def _write_json(frame: Any, output: Output) -> None:
    with output.writer(frame.columns) as writer:
        for row in frame.toLocalIterator(prefetchPartitions=True):
            writer.line(json.dumps(_plain(row.asDict(recursive=True)), separators=(",", ":")))


def _plain(value: Any) -> Any:
    """Return a value for JSON: times as milliseconds, bytes as text if they are UTF-8, else in hexadecimal."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.astimezone()
        return int(aware.timestamp() * 1000)
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value).hex()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _write_rows(frame: Any) -> None:
    """Write the result of SQL as a table."""
    numbers = ("bigint", "int", "double", "float", "smallint", "tinyint")
    columns = [Column(name, right=kind in numbers, width_max=80, width_min=8) for name, kind in frame.dtypes]
    _write_table(frame, columns, lambda row: [_cell(value) for value in row], "row")


def _write_table(frame: Any, columns: Sequence[Column], cells: Callable[[Any], Sequence[str]], noun: str) -> None:
    rows = 0
    with LineWriter() as writer:
        table = StreamTable(writer, columns)
        for row in frame.toLocalIterator(prefetchPartitions=True):
            rows += 1
            table.row(cells(row))
        table.finish()
        writer.line(counted(rows, noun))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes | bytearray):
        return body_preview(bytes(value))
    if isinstance(value, datetime):
        return local_time(_plain(value))
    return printable(value if isinstance(value, str) else json.dumps(_plain(value), ensure_ascii=False))


def _write_messages(frame: Any) -> None:
    columns = [
        Column("topic", width_max=48, width_min=10, style="green"),
        Column("queue", right=True),
        Column("queue offset", right=True, style="cyan"),
        Column("tags", width_max=24, width_min=6, dispensable=2),
        Column("keys", width_max=32, width_min=8, dispensable=1),
        Column("stored"),
        Column("born host", dispensable=3),
        Column("size", right=True),
        Column("body", width_max=60, width_min=12),
    ]
    _write_table(frame, columns, _message_cells, "message")


def _message_cells(row: Any) -> tuple[str, ...]:
    return (
        printable(row.topic),
        str(row.queueId),
        str(row.queueOffset),
        printable(row.tags or ""),
        printable(row.keys or ""),
        local_time(_plain(row.storeTimestamp)),
        row.bornHost,
        byte_count(len(row.body)),
        body_preview(bytes(row.body)),
    )
