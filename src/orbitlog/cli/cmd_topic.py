"""`orbitlog topic`: topics of a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster_command import ask_cluster, cluster_options, show_rows
from orbitlog.cli.show import local_time
from orbitlog.cli.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.rocketmq import RocketMQ

_QUEUE_COLUMNS = (
    Column("brokerName"),
    Column("queueId", right=True),
    Column("minOffset", right=True),
    Column("maxOffset", right=True),
    Column("messages", right=True),
    Column("lastUpdate"),
)


@click.group("topic", help="List, show, make and delete the topics of a running cluster.")
def command() -> None:
    """The group."""


@command.command("list", help="List the topics that the name server knows.")
@click.option("--all", "with_system", is_flag=True, help="Also those of the system, retries and dead letters.")
@cluster_options
def list_topics(*, with_system: bool, address: str, as_json: bool) -> None:
    from orbitlog.formats.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

    topics = ask_cluster(address, lambda mq: mq.admin.topics())
    if not with_system:
        topics = [each for each in topics if not (is_system_topic(each) or each.startswith((RETRY_PREFIX, DLQ_PREFIX)))]
    show_rows([Column("topic")], [{"topic": each} for each in topics], as_json=as_json)


@command.command("show", help="Show the queues of a topic: where they begin and end.")
@click.argument("topic")
@cluster_options
def show_topic(*, topic: str, address: str, as_json: bool) -> None:
    offsets = ask_cluster(address, lambda mq: mq.admin.topic_offsets(topic))
    rows = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": each.min_queue_offset,
            "maxOffset": each.max_queue_offset,
            "messages": each.max_queue_offset - each.min_queue_offset,
            "lastUpdate": local_time(each.last_update_timestamp_ms) if each.last_update_timestamp_ms > 0 else None,
        }
        for queue, each in offsets.items()
    ]
    show_rows(_QUEUE_COLUMNS, rows, as_json=as_json)


@command.command("create", help="Make a topic at every broker, or change how many queues it has.")
@click.argument("topic")
@click.option("--queues", type=click.IntRange(1, 65535), default=8, show_default=True, help="Queues at each broker.")
@click.option(
    "--permission", type=click.Choice(["6", "4", "2"]), default="6", help="6 read and write, 4 read, 2 write."
)
@cluster_options
def create_topic(*, topic: str, queues: int, permission: str, address: str, as_json: bool) -> None:
    async def work(mq: RocketMQ) -> list[dict[str, Any]]:
        await mq.admin.create_topic(topic, queues, permission=int(permission))
        return [{"topic": topic, "brokerName": name, "queues": queues} for name in await mq.admin.brokers()]

    rows = ask_cluster(address, work)
    show_rows([Column("topic"), Column("brokerName"), Column("queues", right=True)], rows, as_json=as_json)


@command.command("delete", help="Delete a topic at every broker and name server. Its messages cannot be had back.")
@click.argument("topic")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_options
def delete_topic(*, topic: str, yes: bool, address: str, as_json: bool) -> None:
    if not yes:
        click.confirm(f"Delete topic {topic} with all its messages?", abort=True, err=True)
    ask_cluster(address, lambda mq: mq.admin.delete_topic(topic))
    show_rows([Column("topic"), Column("deleted")], [{"topic": topic, "deleted": True}], as_json=as_json)
