"""`orbitlog message`: one message by its id, messages by a key, those that wait, and one message's life."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster_command import ask_cluster, cluster_options, show_rows
from orbitlog.cli.main import Problem
from orbitlog.cli.message_row import message_json
from orbitlog.cli.show import host_text, local_time, printable
from orbitlog.cli.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.inspection import WaitingMessage
    from orbitlog.client.received import Received
    from orbitlog.client.rocketmq import RocketMQ
    from orbitlog.wire.trace_records import TraceRecord


_WAITING_COLUMNS = (
    Column("msgId"),
    Column("topic"),
    Column("dueTime"),
    Column("brokerName"),
    Column("cancellable"),
    Column("recallHandle"),
)
_TRACE_COLUMNS = (
    Column("time"),
    Column("step"),
    Column("group"),
    Column("costMs", right=True),
    Column("outcome"),
    Column("detail"),
)


@click.group("message", help="Find messages of a running cluster: by id, by key; those that wait; one message's life.")
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
    show_message(found, as_json=as_json)


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
        show_message(message, as_json=as_json)
    if not found:
        raise Problem(f"no message with key {key} in {topic}")


@command.command("delayed", help="List messages to be delivered later, of TOPIC or of all topics, the next one first.")
@click.argument("topic", required=False)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@cluster_options
def delayed_messages(*, topic: str | None, limit: int, address: str, as_json: bool) -> None:
    found = sorted(ask_cluster(address, lambda mq: _waiting(mq, topic)), key=lambda each: each.due_ms)
    show_rows(_WAITING_COLUMNS, map(_waiting_row, found[:limit]), as_json=as_json)


async def _waiting(mq: RocketMQ, topic: str | None) -> list[WaitingMessage]:
    from orbitlog.client.inspection import Inspection

    return [each async for each in Inspection(mq.admin).waiting(time.time_ns() // 1_000_000, topic)]


def _waiting_row(waiting: WaitingMessage) -> dict[str, Any]:
    return {
        "msgId": waiting.message.message_id,
        "topic": printable(waiting.topic),
        "dueTime": local_time(waiting.due_ms),
        "brokerName": waiting.place.broker_name,
        "cancellable": waiting.recall_handle is not None,
        "recallHandle": waiting.recall_handle,
    }


@command.command("cancel", help="Take back the message ID that waits for its moment in TOPIC; it is never delivered.")
@click.argument("topic")
@click.argument("message_id", metavar="ID")
@cluster_options
def cancel_message(*, topic: str, message_id: str, address: str, as_json: bool) -> None:
    async def work(mq: RocketMQ) -> str:
        from orbitlog.client.inspection import Inspection

        for each in await _waiting(mq, topic):
            if each.message.message_id == message_id:
                if each.recall_handle is None:
                    raise Problem(f"{message_id} waits by a delay level; brokers cannot take such a message back")
                return await Inspection(mq.admin).recall(each.place.broker_name, topic, each.recall_handle)
        raise Problem(f"no message {message_id} waits for its moment in {topic}")

    cancelled = ask_cluster(address, work)
    show_rows((Column("topic"), Column("msgId")), [{"topic": topic, "msgId": cancelled}], as_json=as_json)


@command.command(
    "trace",
    help="Show the life of the message ID as its producer and its consumers wrote it down, if they write traces.",
)
@click.argument("message_id", metavar="ID")
@click.option("--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Where traces are.")
@cluster_options
def trace_message(*, message_id: str, trace_topic: str, address: str, as_json: bool) -> None:
    async def work(mq: RocketMQ) -> list[TraceRecord]:
        from orbitlog.client.inspection import Inspection

        return await Inspection(mq.admin).traces(message_id, trace_topic)

    found = ask_cluster(address, work)
    if not found:
        raise Problem(f"no trace of {message_id} in {trace_topic}; clients write traces only where they are told to")
    show_rows(_TRACE_COLUMNS, map(_trace_row, found), as_json=as_json)


def _trace_row(record: TraceRecord) -> dict[str, Any]:
    from orbitlog.wire.trace_records import CONSUME_RESULTS, END_TRANSACTION, PUB, SUB_AFTER, SUB_BEFORE

    outcome = "success" if record.success else "failure"
    steps = {
        PUB: ("sent", f"{record.topic} at {record.host}, {record.body_bytes} bytes"),
        SUB_BEFORE: ("given to a consumer", f"try {record.retry_times + 1}, request {record.request_id}"),
        SUB_AFTER: ("consumed", f"request {record.request_id}"),
        END_TRANSACTION: ("transaction ended", "after a question" if record.from_check else ""),
    }
    step, detail = steps.get(record.kind, (record.kind.lower(), record.topic))
    if record.kind == SUB_AFTER and 0 < record.result < len(CONSUME_RESULTS):
        outcome = CONSUME_RESULTS[record.result]
    return {
        "time": local_time(record.timestamp_ms) if record.timestamp_ms else None,
        "step": step,
        "group": printable(record.group),
        "costMs": record.cost_ms,
        "outcome": printable(record.transaction_state or outcome),
        "detail": printable(detail),
    }


def show_message(message: Received, *, as_json: bool) -> None:
    """Print everything about a message."""
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
