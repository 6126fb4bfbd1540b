"""`orbitlog offsets`: shows and resets the offsets of consumer groups; `orbitlog group reset` is the same command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.name_completion import group_argument, topic_argument
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column
from orbitlog.cli.topic_positions import parse_position

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.admin.offset_reset import QueueReset

PROGRESS_COLUMNS = (
    Column("topic"),
    Column("brokerName"),
    Column("queueId", right=True),
    Column("committed", right=True),
    Column("end", right=True),
    Column("lag", right=True),
)
_MOVE_COLUMNS = (
    Column("topic"),
    Column("brokerName"),
    Column("queueId", right=True),
    Column("before", right=True),
    Column("offset", right=True),
    Column("end", right=True),
    Column("lag", right=True),
    Column("done"),
)


@click.group("offsets", help="Show the offsets and lag of consumer groups by queue, and reset offsets.")
def command() -> None:
    """The group."""


@command.command("show", help="Show the committed offset and the lag of GROUP by queue.")
@group_argument()
@click.option("--topic", help="Only this topic.")
@cluster_options
def show_offsets(*, group: str, topic: str | None, cluster: Cluster, output: Output) -> None:
    show_progress(group, topic, cluster, output)


def show_progress(group: str, topic: str | None, cluster: Cluster, output: Output) -> None:
    progress = run_with_admin(cluster, lambda admin: admin.progress(group, topic), topic=topic)
    rows = [
        {
            "topic": entry.queue.topic,
            "brokerName": entry.queue.broker_name,
            "queueId": entry.queue.queue_id,
            "committed": entry.committed,
            "end": entry.end,
            "lag": entry.lag,
        }
        for entry in progress
    ]
    show_rows(PROGRESS_COLUMNS, rows, output)


@command.command(
    "reset",
    help="""Reset the offsets of GROUP in TOPIC.

    Every queue is set to the given position: earliest, latest, an offset (limited to the bounds of the queue), a time
    (2026-01-31T12:00, local; or milliseconds since 1970), or an age (-30m). Running members are notified at once; a
    group without members starts there.""",
)
@group_argument()
@topic_argument()
@click.option("--to", "target", required=True, help="earliest, latest, an offset, a time, or -30m, -12h, -7d.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue of each broker.")
@click.option("--dry-run", is_flag=True, help="Print the new offsets, and change nothing.")
@cluster_options
def reset_offsets(
    *, group: str, topic: str, target: str, queue_id: int | None, dry_run: bool, cluster: Cluster, output: Output
) -> None:
    position = parse_position("--to", target)

    async def work(admin: Administration) -> list[QueueReset]:
        from orbitlog.client.admin.offset_reset import OffsetReset

        reset = OffsetReset(admin.link, admin.routes)
        plan = await reset.plan(group, topic, position, queue_id=queue_id)
        return plan if dry_run else await reset.apply(group, plan, position)

    moves = run_with_admin(cluster, work, topic=topic)
    show_rows(_MOVE_COLUMNS, [_row(move, done=not dry_run) for move in moves], output)


def _row(move: QueueReset, *, done: bool) -> dict[str, Any]:
    return {
        "topic": move.queue.topic,
        "brokerName": move.queue.broker_name,
        "queueId": move.queue.queue_id,
        "before": move.before,
        "offset": move.target,
        "end": move.end,
        "lag": move.lag_after,
        "done": done,
    }
