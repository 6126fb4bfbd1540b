"""`orbitlog tail` and `orbitlog message tail`: watch a topic without joining a group."""

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
from orbitlog.cli.topic_positions import Place, parse_position

if TYPE_CHECKING:
    from orbitlog.client.consumer.received import Received
    from orbitlog.client.rocketmq import RocketMQ
    from orbitlog.formats.message_queue import MessageQueue

_LOOK_SECONDS = 0.05


@click.command(
    "tail",
    help="""Show the messages of TOPIC as they come, until interrupted.

    It joins no group: nothing is committed, and nobody's share changes.""",
)
@topic_argument()
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    help="Begin at: earliest, latest, an offset, a time (ISO 8601, local), or so long ago (-30m).",
)
@click.option("--tags", default="*", help="Only these tags: 'A || B'.")
@click.option("--sql", help="Only what an SQL92 expression over the properties selects.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue of each broker.")
@click.option("--limit", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more at the end of the topic.")
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
    place = parse_position("--from", start)
    printer = MessagePrinter(output)
    colour = shows_colour()

    async def work(mq: RocketMQ) -> None:
        from orbitlog.client.connection.namespaces import wrapped

        whole = wrapped(cluster.namespace, topic)  # administration knows topics by their whole names
        ends = None if follow else await mq.admin.topic_offsets(whole)
        queues = await _queues(mq, whole, chosen.pop("queue_id"))
        reader = await mq.read(topic, queues=queues, start=_start(place), **chosen)
        shown = 0
        while limit is None or shown < limit:
            if ends is not None and all(
                position >= ends[queue].max_queue_offset
                for queue, position in reader.positions().items()
                if queue in ends
            ):
                return
            message = await reader.next(None if follow else _LOOK_SECONDS)
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
    found = [each for each in (await mq.admin.routes.of(topic)).read_queues if each.queue_id == queue_id]
    if not found:
        raise Problem(f"topic {topic} has no queue {queue_id}")
    return found


def _start(place: Place) -> datetime | int | str:
    return {"earliest": "first", "latest": "last"}[place] if isinstance(place, str) else place


def _line(message: Received, *, colour: bool) -> str:
    when = local_time(message.stored.store_timestamp_ms)
    place = f"{message.queue_id}/{message.queue_offset}"
    marks = printable(" ".join(filter(None, (message.tags, *message.keys))))
    if colour:
        return (
            f"{click.style(when, dim=True)}  {click.style(f'{place:>10}', fg='cyan')}"
            f"  {click.style(f'{marks:20}', fg='yellow')}  {body_preview(message.body)}"
        )
    return f"{when}  {place:>10}  {marks:20}  {body_preview(message.body)}"
