"""`orbitlog message`: one message by its id, or messages by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orbitlog.cli.cluster_command import ask_cluster, cluster_options
from orbitlog.cli.main import Problem
from orbitlog.cli.message_row import message_json
from orbitlog.cli.show import host_text, local_time, printable

if TYPE_CHECKING:
    from orbitlog.client.received import Received
    from orbitlog.client.rocketmq import RocketMQ


@click.group("message", help="Find messages of a running cluster: by id, by key.")
def command() -> None:
    """The group."""


@command.command("get", help="Show a message by its id: the broker's, or its sender's together with --topic.")
@click.argument("message_id")
@click.option("--topic", help="The topic, for an id that the sender gave.")
@cluster_options
def get_message(*, message_id: str, topic: str | None, address: str, as_json: bool) -> None:
    found = ask_cluster(address, lambda mq: mq.admin.message(message_id, topic))
    if found is None:
        hint = "" if topic else "; an id that its sender gave needs --topic"
        raise Problem(f"no message {message_id}{hint}")
    _show(found, as_json=as_json)


@command.command("find", help="Show the messages of TOPIC that have KEY.")
@click.argument("topic")
@click.argument("key")
@click.option("--limit", type=click.IntRange(1, 64), default=32, show_default=True, help="At most so many.")
@cluster_options
def find_messages(*, topic: str, key: str, limit: int, address: str, as_json: bool) -> None:
    async def work(mq: RocketMQ) -> list[Received]:
        return [each async for each in mq.admin.find(topic, key, count=limit)]

    found = ask_cluster(address, work)
    for message in found:
        _show(message, as_json=as_json)
    if not found:
        raise Problem(f"no message with key {key} in {topic}")


def _show(message: Received, *, as_json: bool) -> None:
    stored = message.stored
    if as_json:
        click.echo(message_json(stored, stored.size_bytes)[0])
        return
    click.echo(f"{message.topic}  queue {message.queue_id}  offset {message.queue_offset}")
    for name, value in (
        ("id", message.message_id),
        ("broker's id", message.offset_message_id),
        ("stored", local_time(stored.store_timestamp_ms)),
        ("born", f"{local_time(stored.born_timestamp_ms)} at {host_text(stored.born_host_raw)}"),
        ("tried before", str(message.attempts)),
        *sorted(message.properties.items()),
    ):
        click.echo(f"  {name:14} {printable(value)}")
    click.echo(message.body.decode(errors="backslashreplace"))
