"""`orbitlog tail`: watch a topic without joining a group."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from orbitlog.cli.cluster_command import ask_cluster, cluster_options
from orbitlog.cli.main import WrongUse
from orbitlog.cli.show import body_preview, local_time, printable

if TYPE_CHECKING:
    from orbitlog.client.received import Received
    from orbitlog.client.rocketmq import RocketMQ

_QUIET_SECONDS = 1.0


@click.command(
    "tail",
    help="""Show the messages of TOPIC as they come, until interrupted.

    It joins no group: nothing is committed, and nobody's share changes.""",
)
@click.argument("topic")
@click.option("--from", "start", default="last", show_default=True, help="Begin at: first, last, or a time (ISO 8601).")
@click.option("--tags", default="*", help="Only these tags: 'A || B'.")
@click.option("--sql", help="Only what an SQL92 expression over the properties selects.")
@click.option("--limit", type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--follow/--no-follow", default=True, show_default=True, help="Wait for more at the end of the topic.")
@cluster_options
def command(
    *,
    topic: str,
    start: str,
    tags: str,
    sql: str | None,
    limit: int | None,
    follow: bool,
    address: str,
    as_json: bool,
) -> None:
    begin = _moment(start)

    async def work(mq: RocketMQ) -> None:
        reader = await mq.read(topic, start=begin, tags=tags, sql=sql)
        shown = 0
        while limit is None or shown < limit:
            message = await reader.next(None if follow else _QUIET_SECONDS)
            if message is None:
                return
            click.echo(_line(message, as_json=as_json))
            shown += 1
            if shown % 100 == 0:
                await asyncio.sleep(0)

    ask_cluster(address, work)


def _moment(text: str) -> datetime | str:
    if text in ("first", "last"):
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"--from {text!r} is neither first, last nor a time such as 2026-01-31T12:00") from None
    return moment if moment.tzinfo is not None else moment.astimezone(UTC)


def _line(message: Received, *, as_json: bool) -> str:
    stored = message.stored
    if as_json:
        facts = {
            "topic": message.topic,
            "queueId": message.queue_id,
            "queueOffset": message.queue_offset,
            "msgId": message.message_id,
            "offsetMsgId": message.offset_message_id,
            "keys": " ".join(message.keys) or None,
            "tags": message.tags,
            "properties": message.properties,
            "bornTimestamp": stored.born_timestamp_ms,
            "storeTimestamp": stored.store_timestamp_ms,
            "reconsumeTimes": message.attempts,
            "body": message.body.decode(errors="replace"),
        }
        return json.dumps(facts, ensure_ascii=False)
    place = f"{message.queue_id}/{message.queue_offset}"
    marks = " ".join(filter(None, (message.tags, *message.keys)))
    return f"{local_time(stored.store_timestamp_ms)}  {place:>10}  {printable(marks):20}  {body_preview(message.body)}"
