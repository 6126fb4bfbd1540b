"""`orbitlog bench`: a load generator with the Orbitlog client, for any RocketMQ cluster."""

from __future__ import annotations

from typing import Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.name_completion import complete_topics
from orbitlog.cli.output.display_text import byte_count
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

DEFAULT_TOPIC = "OrbitlogBench"
_COLUMNS = (
    Column("messages", right=True),
    Column("bytes", right=True),
    Column("seconds", right=True),
    Column("messagesPerSecond", right=True),
    Column("mebibytesPerSecond", right=True),
    Column("p50Ms", right=True),
    Column("p99Ms", right=True),
    Column("maxMs", right=True),
    Column("cpuSeconds", right=True),
    Column("cpuMicrosecondsPerMessage", right=True),
    Column("failures", right=True),
)


@click.group(
    "bench",
    help="""Measure the throughput and latency of a cluster.

    Latency is measured in this process, from request to response; CPU time is that of this process, not of the broker.
    One Python process cannot saturate a broker: start several.""",
)
def command() -> None:
    """The group."""


@command.command("send", help="Send messages; report messages per second and latency.")
@click.option(
    "--topic",
    default=DEFAULT_TOPIC,
    show_default=True,
    shell_complete=complete_topics,
    help="Topic; created if it does not exist.",
)
@click.option("--size", type=click.IntRange(0, 4 << 20), default=1024, show_default=True, help="Body size in bytes.")
@click.option("--count", type=click.IntRange(1), default=10_000, show_default=True, help="Total number of messages.")
@click.option(
    "--in-flight",
    type=click.IntRange(1, 10_000),
    default=32,
    show_default=True,
    help="Maximum sends in flight per client.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of clients, each in its own thread.",
)
@click.option("--batch", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Messages per request.")
@click.option("--queues", type=click.IntRange(1, 1_000), default=8, show_default=True, help="Queues of a new topic.")
@cluster_options
@click.pass_context
def bench_send(context: click.Context, /, *, cluster: Cluster, output: Output, **load: Any) -> None:
    from orbitlog.cli.cluster.load_generator import SendLoad, run_send

    _show(context, run_send(cluster, SendLoad(**load)).row(), output)


@command.command("consume", help="Read a topic from its start without joining a group; report messages per second.")
@click.option(
    "--topic", default=DEFAULT_TOPIC, show_default=True, shell_complete=complete_topics, help="Topic to read."
)
@click.option(
    "--count", type=click.IntRange(1), default=10_000, show_default=True, help="Total number of messages to read."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of clients; queues are divided among them.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1),
    default=60,
    show_default=True,
    help="Stop if no message arrives for this long.",
)
@cluster_options
@click.pass_context
def bench_consume(context: click.Context, /, *, cluster: Cluster, output: Output, **load: Any) -> None:
    from orbitlog.cli.cluster.load_generator import ConsumeLoad, run_consume

    _show(context, run_consume(cluster, ConsumeLoad(**load)).row(), output)


def _show(context: click.Context, row: dict[str, Any], output: Output) -> None:
    if output.is_table:
        for name, text in _summary(row):
            click.echo(f"{name:14}{text}")
    else:
        show_rows(_COLUMNS, [row], output)
    if row["failures"] or not row["messages"]:
        context.exit(1)


def _summary(row: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the figures with their names as text."""
    latencies = ", ".join(
        f"{name} {row[key]} ms" for name, key in (("p50", "p50Ms"), ("p99", "p99Ms"), ("max", "maxMs"))
    )
    return [
        ("messages", f"{row['messages']:,}, {byte_count(row['bytes'])}, in {row['seconds']} s"),
        ("rate", f"{row['messagesPerSecond']:,} a second, {row['mebibytesPerSecond']} MiB/s"),
        ("latency", latencies if row["p50Ms"] is not None else "-"),
        ("client CPU", f"{row['cpuSeconds']} s, {row['cpuMicrosecondsPerMessage']} µs a message"),
        ("failures", f"{row['failures']:,}"),
    ]
