"""`orbitlog send`: messages from the command line or from standard input, a line each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from orbitlog.cli.cluster_command import ask_cluster, cluster_options

if TYPE_CHECKING:
    from orbitlog.client.receipts import Receipt
    from orbitlog.client.rocketmq import RocketMQ


@click.command(
    "send",
    help="""Send messages to a topic of a running cluster.

    Each BODY is one; - takes every line of standard input. Prints where each message is when a broker has it; exit 1
    if one could not be sent.""",
)
@click.argument("topic")
@click.argument("bodies", metavar="BODY...", nargs=-1, required=True)
@click.option("--tags", help="Tag of the messages.")
@click.option("--key", "keys", multiple=True, help="A key to find the messages by; may be given several times.")
@click.option("--delay", type=float, help="Deliver after so many seconds.")
@click.option("--ordered-by", help="Messages with the same value stay in order.")
@cluster_options
def command(
    *,
    topic: str,
    bodies: tuple[str, ...],
    tags: str | None,
    keys: tuple[str, ...],
    delay: float | None,
    ordered_by: str | None,
    address: str,
    as_json: bool,
) -> None:
    async def work(mq: RocketMQ) -> None:
        for body in _each(bodies):
            receipt = await mq.send(topic, body, tags=tags, keys=keys, delay=delay, ordered_by=ordered_by)
            click.echo(_told(receipt, as_json=as_json))

    ask_cluster(address, work)


def _each(bodies: tuple[str, ...]) -> Iterator[str]:
    for body in bodies:
        if body == "-":
            yield from (line.rstrip("\n") for line in sys.stdin if line.strip())
        else:
            yield body


def _told(receipt: Receipt, *, as_json: bool) -> str:
    queue = receipt.queue
    if as_json:
        facts = {
            "status": str(receipt.status),
            "msgId": receipt.message_id,
            "offsetMsgId": receipt.offset_message_id,
            "topic": queue.topic,
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "queueOffset": receipt.queue_offset,
        }
        return json.dumps(facts)
    place = f"{queue.topic} {queue.broker_name}:{queue.queue_id} at {receipt.queue_offset}"
    return f"{receipt.message_id}  {place}  {receipt.status}"
