"""`orbitlog pipeline replay`: sends messages of a store or a table back into topics of a cluster, each once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orbitlog.cli.job_options import master_option, spark_session
from orbitlog.cli.main import Problem
from orbitlog.cli.output.display_text import byte_count, counted
from orbitlog.cli.output.json_rows import Output, output_options
from orbitlog.cli.pipeline.pipeline_options import (
    chosen_cluster,
    cluster_options,
    log_path_options,
    name_given_stores,
    parse_time,
)

if TYPE_CHECKING:
    from orbitlog.pipeline.replay.replay_job import ReplayReport

_DRY_FIELDS = ("topic", "messages", "bodyBytes")
_FIELDS = ("sent", "found", "failed", "tasks", "resumedTasks", "state")


def _topic_map(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    pairs = [text.partition("=") for text in given]
    for text, (old, _equals, new) in zip(given, pairs, strict=True):
        if not old or not new:
            raise click.BadParameter(f"{text!r} is not OLD=NEW, two names of topics", param=parameter)
    return tuple((old, new) for old, _equals, new in pairs)


@click.command("replay")
@click.argument("stores", metavar="[STORE...]", nargs=-1)
@click.option("--table", type=click.Path(file_okay=False, path_type=Path), help="Directory of a table to replay.")
@click.option(
    "--table-format",
    type=click.Choice(("parquet", "delta", "iceberg")),
    default="parquet",
    show_default=True,
    help="Format of --table.",
)
@click.option("--topic", "topics", multiple=True, help="Only this topic; required for stores; repeatable.")
@click.option("--key", "keys", multiple=True, help="Only messages with this key or unique key; repeatable.")
@click.option("--tag", "tags", multiple=True, help="Only messages with this tag; repeatable.")
@click.option(
    "--from", "from_ms", callback=parse_time, metavar="TIME", help="Only messages stored at or after this time."
)
@click.option("--to", "to_ms", callback=parse_time, metavar="TIME", help="Only messages stored before this time.")
@click.option(
    "--map",
    "topic_map",
    multiple=True,
    callback=_topic_map,
    metavar="OLD=NEW",
    help="Send messages of topic OLD to topic NEW; other topics keep their names; repeatable.",
)
@click.option("--to-topic", help="Send all messages to this topic.")
@click.option("--keep-queues", is_flag=True, help="Send each message to its queue id, in order.")
@click.option("--rate", type=click.IntRange(min=1), help="Maximum messages per second, of all tasks together.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="New directory for the plan, marks and record of sent messages; the same one resumes.",
)
@click.option("--dry-run", is_flag=True, help="Count the messages by target topic; send nothing.")
@click.option("--ignore-loss", is_flag=True, help="Skip messages that were deleted or are damaged, instead of failing.")
@master_option
@cluster_options
@log_path_options
@output_options
def command(
    *,
    stores: tuple[str, ...],
    table: Path | None,
    table_format: str,
    topics: tuple[str, ...],
    keys: tuple[str, ...],
    tags: tuple[str, ...],
    from_ms: int | None,
    to_ms: int | None,
    topic_map: tuple[tuple[str, str], ...],
    to_topic: str | None,
    keep_queues: bool,
    rate: int | None,
    state: Path | None,
    dry_run: bool,
    ignore_loss: bool,
    master: str,
    address: str | None,
    context_name: str | None,
    uses_tls: bool,
    config_path: Path | None,
    assignments: tuple[str, ...],
    output: Output,
) -> None:
    """Send messages of a store or a table back into topics, each once.

    STORE is a broker's storePathRootDir, or name=PATH to name it. After a kill at any point, the same command resumes:
    it sends only what is missing. STATE/sent records each message with its old and new position."""
    output.check(_DRY_FIELDS if dry_run else _FIELDS)
    cluster = chosen_cluster(address, context_name, uses_tls=uses_tls)
    if bool(stores) == (table is not None):
        raise click.UsageError("give the directories of stores, or a table with --table, but not both")
    if stores and not topics:
        raise click.UsageError("give --topic: which topic of the stores to replay")
    if topic_map and to_topic is not None:
        raise click.UsageError("--map and --to-topic are both given; give one of them")
    if not dry_run and (cluster is None or state is None):
        raise click.UsageError("a replay needs --name-server or --context, and --state; or give --dry-run")
    from orbitlog.pipeline.replay.replay_job import ReplayRequest, replay, replay_dry
    from orbitlog.pipeline.replay.replay_rows import ReplayRules
    from orbitlog.pipeline.runtime.spark_runner import runner

    rules = ReplayRules(topics, keys, tags, from_ms, to_ms, topic_map, to_topic, keep_queues)
    named = name_given_stores(stores, config_path, assignments) if stores else ()
    request = ReplayRequest(state, rules, named, table, table_format, fail_on_data_loss=not ignore_loss)
    with spark_session(master, "replay", only_tasks=True) as spark:
        if dry_run:
            _print_dry(replay_dry(runner(spark), request), output)
            return
        slots = spark.sparkContext.defaultParallelism
        report = replay(runner(spark), request, cluster, rate=rate, slots=slots)
    _print(report, state, output)
    if report.failed:
        raise Problem(f"{counted(report.failed, 'message')} could not be sent; {state}/failed has them with the reason")


def _print_dry(report: ReplayReport, output: Output) -> None:
    for topic, (messages, size_bytes) in report.topics.items():
        if output.is_table:
            click.echo(f"{topic or '(no topic)'}: {counted(messages, 'message')}, {byte_count(size_bytes)} of bodies")
        else:
            output.write(_DRY_FIELDS, {"topic": topic, "messages": messages, "bodyBytes": size_bytes})
    if output.is_table:
        total = sum(messages for messages, _ in report.topics.values())
        click.echo(f"dry run: {counted(total, 'message')} would be sent in {counted(report.tasks, 'task')}")


def _print(report: ReplayReport, state: Path | None, output: Output) -> None:
    values = (report.sent, report.found, report.failed, report.tasks, report.resumed_tasks, str(state))
    if not output.is_table:
        output.write(_FIELDS, dict(zip(_FIELDS, values, strict=True)))
        return
    click.echo(
        f"{counted(report.sent, 'message')} sent, {report.found} found at brokers after an interruption,"
        f" {report.failed} failed; {report.resumed_tasks} of {counted(report.tasks, 'task')} were done before"
    )
