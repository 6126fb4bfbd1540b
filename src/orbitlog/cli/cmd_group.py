"""`orbitlog group`: consumer groups of a running cluster, how far they are, and moving them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster_command import ask_cluster, cluster_options, show_rows
from orbitlog.cli.main import WrongUse
from orbitlog.cli.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.rocketmq import RocketMQ

_PROGRESS_COLUMNS = (
    Column("topic"),
    Column("brokerName"),
    Column("queueId", right=True),
    Column("committed", right=True),
    Column("end", right=True),
    Column("lag", right=True),
)


@click.group("group", help="List consumer groups of a running cluster, show how far they are, move them.")
def command() -> None:
    """The group."""


@command.command("list", help="List the consumer groups that brokers know.")
@cluster_options
def list_groups(*, address: str, as_json: bool) -> None:
    async def work(mq: RocketMQ) -> list[str]:
        found: set[str] = set()
        for broker in (await mq.admin.brokers()).values():
            found |= set(await mq.admin.groups(broker))
        return sorted(found)

    show_rows([Column("group")], [{"group": each} for each in ask_cluster(address, work)], as_json=as_json)


@command.command("show", help="Show how far a group is in each queue, and how many messages it has before it.")
@click.argument("group")
@click.option("--topic", help="Only this topic.")
@cluster_options
def show_group(*, group: str, topic: str | None, address: str, as_json: bool) -> None:
    progress = ask_cluster(address, lambda mq: mq.admin.progress(group, topic))
    rows = [
        {
            "topic": each.queue.topic,
            "brokerName": each.queue.broker_name,
            "queueId": each.queue.queue_id,
            "committed": each.committed,
            "end": each.end,
            "lag": each.lag,
        }
        for each in progress
    ]
    show_rows(_PROGRESS_COLUMNS, rows, as_json=as_json)


@command.command("reset", help="Let a group go on elsewhere in a topic: at a time, an offset, or the end.")
@click.argument("group")
@click.argument("topic")
@click.option("--to", "target", required=True, help="end, an ISO 8601 time, or a queue offset.")
@cluster_options
def reset_group(*, group: str, topic: str, target: str, address: str, as_json: bool) -> None:
    moment = _target(target)
    moved = ask_cluster(address, lambda mq: mq.admin.reset_offsets(group, topic, moment))
    rows: list[dict[str, Any]] = [
        {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id, "offset": queue_offset}
        for queue, queue_offset in sorted(moved.items())
    ]
    columns = [Column("topic"), Column("brokerName"), Column("queueId", right=True), Column("offset", right=True)]
    show_rows(columns, rows, as_json=as_json)


def _target(text: str) -> datetime | int | None:
    if text == "end":
        return None
    if text.isdecimal() and len(text) < 10:
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise WrongUse(f"--to {text!r} is neither end, an offset nor a time such as 2026-01-31T12:00") from None
