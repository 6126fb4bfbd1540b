"""`orbitlog topic`: topics of a running cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.cluster_names import user_topics
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem, WrongUse
from orbitlog.cli.name_completion import topic_argument
from orbitlog.cli.output.display_text import local_time
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration

_PERMISSIONS = {"6": "read and write", "4": "read", "2": "write"}
_QUEUE_COLUMNS = (
    Column("brokerName"),
    Column("queueId", right=True),
    Column("minOffset", right=True),
    Column("maxOffset", right=True),
    Column("messages", right=True),
    Column("lastUpdate"),
)
_CONFIG_COLUMNS = (
    Column("topic"),
    Column("brokerName"),
    Column("readQueues", right=True),
    Column("writeQueues", right=True),
    Column("permission"),
    Column("ordered"),
    Column("attributes"),
)


@click.group("topic", help="List, show, create, change and delete topics of a running cluster.")
def command() -> None:
    """The group."""


@command.command("list", help="List topics. System, retry and dead-letter topics are hidden unless --all.")
@click.option("--all", "with_system", is_flag=True, help="Also list system, retry and dead-letter topics.")
@cluster_options
def list_topics(*, with_system: bool, cluster: Cluster, output: Output) -> None:
    topics = run_with_admin(cluster, lambda admin: admin.topics() if with_system else _user_topics(admin))
    show_rows([Column("topic")], [{"topic": topic} for topic in topics], output)


async def _user_topics(admin: Administration) -> list[str]:
    from orbitlog.cli.user_names import topics_named_by_brokers

    of_brokers = await topics_named_by_brokers(admin)
    return [topic for topic in user_topics(await admin.topics()) if topic not in of_brokers]


@command.command("show", help="Show the offsets of each queue of a topic, or its configuration.")
@topic_argument()
@click.option(
    "--config", "with_config", is_flag=True, help="Show its queue counts, permission and attributes at each broker."
)
@cluster_options
def show_topic(*, topic: str, with_config: bool, cluster: Cluster, output: Output) -> None:
    if with_config:
        show_rows(_CONFIG_COLUMNS, run_with_admin(cluster, lambda admin: _configs(admin, topic), topic=topic), output)
        return
    offsets = run_with_admin(cluster, lambda admin: admin.topic_offsets(topic), topic=topic)
    rows = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": bounds.min_queue_offset,
            "maxOffset": bounds.max_queue_offset,
            "messages": bounds.max_queue_offset - bounds.min_queue_offset,
            "lastUpdate": local_time(bounds.last_update_timestamp_ms) if bounds.last_update_timestamp_ms > 0 else None,
        }
        for queue, bounds in offsets.items()
    ]
    show_rows(_QUEUE_COLUMNS, rows, output)


async def _configs(admin: Administration, topic: str) -> list[dict[str, Any]]:
    await admin.routes.refresh(topic)  # raises if the topic does not exist
    rows = []
    for name, address in (await admin.brokers()).items():
        config = (await admin.topic_configs(address)).get(topic)
        if config is not None:
            rows.append(
                {
                    "topic": topic,
                    "brokerName": name,
                    "readQueues": config.read_queue_count,
                    "writeQueues": config.write_queue_count,
                    "permission": _PERMISSIONS.get(str(config.permission), str(config.permission)),
                    "ordered": config.ordered,
                    "attributes": dict(config.attributes),
                }
            )
    return rows


@command.command("create", help="Create a topic at every broker, or change its number of queues.")
@topic_argument()
@click.option("--queues", type=click.IntRange(1, 65535), default=8, show_default=True, help="Queues at each broker.")
@click.option(
    "--permission", type=click.Choice(list(_PERMISSIONS)), default="6", help="6 read and write, 4 read, 2 write."
)
@click.option(
    "--ordered",
    is_flag=True,
    help="Register its queue order with the name servers, so that it stays the same while a broker is down.",
)
@cluster_options
def create_topic(*, topic: str, queues: int, permission: str, ordered: bool, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> list[dict[str, Any]]:
        await admin.create_topic(topic, queues, permission=int(permission), ordered=ordered)
        brokers = await admin.brokers()
        if ordered:
            from orbitlog.client.admin.name_server_admin import NameServerAdmin

            order = ";".join(f"{name}:{queues}" for name in sorted(brokers))
            await NameServerAdmin(admin.link).put_order(topic, order, whole_cluster=True)
        return [{"topic": topic, "brokerName": name, "queues": queues} for name in brokers]

    rows = run_with_admin(cluster, work)
    show_rows([Column("topic"), Column("brokerName"), Column("queues", right=True)], rows, output)


@command.command(
    "update",
    help="""Change a topic at every broker that has it; options that are not given stay unchanged.

    With fewer queues, consumers no longer read the messages in the removed queues.""",
)
@topic_argument()
@click.option("--queues", type=click.IntRange(1, 65535), help="Queues at each broker, to read and to write.")
@click.option("--read-queues", type=click.IntRange(1, 65535), help="Queues to read from.")
@click.option("--write-queues", type=click.IntRange(1, 65535), help="Queues to write to.")
@click.option("--permission", type=click.Choice(list(_PERMISSIONS)), help="6 read and write, 4 read, 2 write.")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="+K=V|-K",
    help="Set or remove an attribute (5.x); may be repeated.",
)
@cluster_options
def update_topic(
    *,
    topic: str,
    queues: int | None,
    read_queues: int | None,
    write_queues: int | None,
    permission: str | None,
    attributes: tuple[str, ...],
    cluster: Cluster,
    output: Output,
) -> None:
    reading, writing = read_queues or queues, write_queues or queues
    if (reading, writing, permission) == (None, None, None) and not attributes:
        raise WrongUse("nothing to change; give --queues, --permission or --attribute")

    async def work(admin: Administration) -> list[dict[str, Any]]:
        from dataclasses import replace

        from orbitlog.client.admin.broker_admin import BrokerAdmin, parse_attributes

        await admin.routes.refresh(topic)
        parse_attributes(",".join(attributes)) if attributes else None
        for address in (await admin.brokers()).values():
            config = (await admin.topic_configs(address)).get(topic)
            if config is not None:
                changed = replace(
                    config,
                    read_queue_count=reading or config.read_queue_count,
                    write_queue_count=writing or config.write_queue_count,
                    permission=int(permission or config.permission),
                )
                await BrokerAdmin(admin.link).put_topic(address, changed, ",".join(attributes) or None)
        return await _configs(admin, topic)

    rows = run_with_admin(cluster, work, topic=topic)
    if not rows:
        raise Problem(f"no broker has topic {topic}")
    show_rows(_CONFIG_COLUMNS, rows, output)


@command.command("delete", help="Delete a topic at every broker and name server. Its messages cannot be restored.")
@topic_argument()
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@cluster_options
def delete_topic(*, topic: str, yes: bool, cluster: Cluster, output: Output) -> None:
    if not yes:
        click.confirm(f"Delete topic {topic} with all its messages?", abort=True, err=True)
    run_with_admin(cluster, lambda admin: admin.delete_topic(topic))
    show_rows([Column("topic"), Column("deleted")], [{"topic": topic, "deleted": True}], output)
