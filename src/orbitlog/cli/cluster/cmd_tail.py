"""`orbitlog tail` and `orbitlog message tail`: prints the messages of a topic without joining a group."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_client
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem
from orbitlog.cli.name_completion import topic_argument
from orbitlog.cli.output.display_text import body_preview, local_time, printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.message_printer import MessagePrinter
from orbitlog.cli.output.stream_table import shows_colour
from orbitlog.cli.output.terminal import styled
from orbitlog.cli.topic_positions import TopicPosition, parse_position

if TYPE_CHECKING:
    from orbitlog.client.consumer.received import Received
    from orbitlog.client.rocketmq import RocketMQ
    from orbitlog.formats.message_queue import MessageQueue

_POLL_SECONDS = 0.05


@click.command(
    "tail",
    help="""Print the messages of TOPIC as they arrive, until interrupted.

    Joins no group: commits no offsets and does not rebalance consumers.""",
)
@topic_argument()
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    help="Start position: earliest, latest, an offset, a time (ISO 8601, local), or an age (-30m).",
)
@click.option("--tags", default="*", help="Only these tags: 'A || B'.")
@click.option("--sql", help="Only messages that an SQL92 expression over the properties selects.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue of each broker.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many messages.")
@click.option(
    "--follow/--no-follow", default=True, show_default=True, help="Wait for new messages at the end of the topic."
)
@cluster_options
def command(
    *,
    topic: str,
    start: str,
    limit: int | None,
    follow: bool,
    cluster: Cluster,
    output: Output,
    **chosen: Any,
) -> None:
    position = parse_position("--from", start)
    printer = MessagePrinter(output)
    colour = shows_colour()

    async def work(mq: RocketMQ) -> None:
        from orbitlog.client.connection.namespaces import wrapped

        whole = wrapped(cluster.namespace, topic)  # the admin API uses names with the namespace
        ends = None if follow else await mq.admin.topic_offsets(whole)
        queues = await _queues(mq, whole, chosen.pop("queue_id"))
        reader = await mq.read(topic, queues=queues, start=_start(position), **chosen)
        shown = 0
        while limit is None or shown < limit:
            if ends is not None and all(
                queue_offset >= ends[queue].max_queue_offset
                for queue, queue_offset in reader.positions().items()
                if queue in ends
            ):
                return
            message = await reader.next(None if follow else _POLL_SECONDS)
            if message is None:
                if follow:
                    return
                continue
            printer.show(message, _line(message, colour=colour))
            shown += 1
            if shown % 100 == 0:
                await asyncio.sleep(0)

    run_with_client(cluster, work, topic=topic)


async def _queues(mq: RocketMQ, topic: str, queue_id: int | None) -> list[MessageQueue] | None:
    if queue_id is None:
        return None
    queues = [queue for queue in (await mq.admin.routes.of(topic)).read_queues if queue.queue_id == queue_id]
    if not queues:
        raise Problem(f"topic {topic} has no queue {queue_id}")
    return queues


def _start(position: TopicPosition) -> datetime | int | str:
    return {"earliest": "first", "latest": "last"}[position] if isinstance(position, str) else position


def _line(message: Received, *, colour: bool) -> str:
    when = local_time(message.stored.store_timestamp_ms)
    position = f"{message.queue_id}/{message.queue_offset}"
    marks = printable(" ".join(filter(None, (message.tags, *message.keys))))
    if colour:
        return (
            f"{styled(when, dim=True)}  {styled(f'{position:>10}', fg='cyan')}"
            f"  {styled(f'{marks:20}', fg='yellow')}  {body_preview(message.body)}"
        )
    return f"{when}  {position:>10}  {marks:20}  {body_preview(message.body)}"
