"""`orbitlog message`: one by its id, by a key, those that wait, one message's life; sending and watching."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from orbitlog.cli.cluster import cmd_send, cmd_tail
from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_admin
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import Problem
from orbitlog.cli.name_completion import topic_argument
from orbitlog.cli.output.display_text import local_time, printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.message_printer import MessagePrinter
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column

if TYPE_CHECKING:
    from orbitlog.client.admin.administration import Administration
    from orbitlog.client.admin.inspection import ScheduledMessage
    from orbitlog.client.consumer.received import Received
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


@click.group(
    "message",
    help="Find messages of a running cluster: by id, by key; those that wait; one message's life. Send and watch.",
)
def command() -> None:
    """The group."""


command.add_command(cmd_send.command)
command.add_command(cmd_tail.command)


@command.command("get", help="Show a message by its id: the broker's, or its sender's together with --topic.")
@click.argument("message_id")
@click.option("--topic", help="The topic, for an id that the sender gave.")
@cluster_options
def get_message(*, message_id: str, topic: str | None, cluster: Cluster, output: Output) -> None:
    printer = MessagePrinter(output)
    found = run_with_admin(cluster, lambda admin: admin.message(message_id, topic), topic=topic)
    if found is None:
        hint = "" if topic else "; an id that its sender gave needs --topic"
        raise Problem(f"no message {message_id}{hint}")
    printer.show(found)


@command.command("find", help="Show the messages of TOPIC that have KEY.")
@topic_argument()
@click.argument("key")
@click.option("--limit", type=click.IntRange(1, 64), default=32, show_default=True, help="At most so many.")
@cluster_options
def find_messages(*, topic: str, key: str, limit: int, cluster: Cluster, output: Output) -> None:
    printer = MessagePrinter(output)

    async def work(admin: Administration) -> list[Received]:
        return [each async for each in admin.find(topic, key, count=limit)]

    found = run_with_admin(cluster, work, topic=topic)
    for message in found:
        printer.show(message)
    if not found:
        raise Problem(f"no message with key {key} in {topic}")


@command.command("delayed", help="List messages to be delivered later, of TOPIC or of all topics, the next one first.")
@topic_argument(required=False)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@cluster_options
def delayed_messages(*, topic: str | None, limit: int, cluster: Cluster, output: Output) -> None:
    found = sorted(run_with_admin(cluster, lambda admin: _waiting(admin, topic)), key=lambda each: each.due_ms)
    show_rows(_WAITING_COLUMNS, map(_waiting_row, found[:limit]), output)


async def _waiting(admin: Administration, topic: str | None) -> list[ScheduledMessage]:
    from orbitlog.client.admin.inspection import Inspection

    return [each async for each in Inspection(admin).scheduled(time.time_ns() // 1_000_000, topic)]


def _waiting_row(waiting: ScheduledMessage) -> dict[str, Any]:
    return {
        "msgId": waiting.message.message_id,
        "topic": printable(waiting.topic),
        "dueTime": local_time(waiting.due_ms),
        "brokerName": waiting.queue.broker_name,
        "cancellable": waiting.recall_handle is not None,
        "recallHandle": waiting.recall_handle,
    }


@command.command("cancel", help="Take back the message ID that waits for its moment in TOPIC; it is never delivered.")
@topic_argument()
@click.argument("message_id", metavar="ID")
@cluster_options
def cancel_message(*, topic: str, message_id: str, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> str:
        from orbitlog.client.admin.inspection import Inspection

        for each in await _waiting(admin, topic):
            if message_id in (each.message.message_id, each.recall_handle):
                if each.recall_handle is None:
                    raise Problem(f"{message_id} waits by a delay level; brokers cannot take such a message back")
                return await Inspection(admin).recall(each.queue.broker_name, topic, each.recall_handle)
        raise Problem(f"no message {message_id} waits for its moment in {topic}")

    cancelled = run_with_admin(cluster, work)
    show_rows((Column("topic"), Column("msgId")), [{"topic": topic, "msgId": cancelled}], output)


@command.command(
    "trace",
    help="Show the life of the message ID as its producer and its consumers wrote it down, if they write traces.",
)
@click.argument("message_id", metavar="ID")
@click.option("--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Where traces are.")
@cluster_options
def trace_message(*, message_id: str, trace_topic: str, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> list[TraceRecord]:
        from orbitlog.client.admin.inspection import Inspection

        return await Inspection(admin).traces(message_id, trace_topic)

    found = run_with_admin(cluster, work)
    if not found:
        raise Problem(f"no trace of {message_id} in {trace_topic}; clients write traces only where they are told to")
    show_rows(_TRACE_COLUMNS, map(_trace_row, found), output)


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
