"""`orbitlog message`: finds messages by id or key, lists delayed and quarantined ones, shows traces, sends, tails."""

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
from orbitlog.cli.output.display_text import body_preview, local_time, printable
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.message_printer import MessagePrinter
from orbitlog.cli.output.row_output import show_rows
from orbitlog.cli.output.stream_table import Column
from orbitlog.errors import NoRoute

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
_QUARANTINE_COLUMNS = (
    Column("msgId"),
    Column("storeTime"),
    Column("brokerName"),
    Column("fromTopic"),
    Column("toTopic"),
    Column("reason"),
    Column("omitted"),
    Column("body"),
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
    help="Find messages of a running cluster by id or key; list and cancel delayed ones; show traces; send and tail.",
)
def command() -> None:
    """The group."""


command.add_command(cmd_send.command)
command.add_command(cmd_tail.command)


@command.command(
    "get", help="Show a message by its id: an offset message id, or a producer's unique id together with --topic."
)
@click.argument("message_id")
@click.option("--topic", help="Topic, for a producer's unique id.")
@cluster_options
def get_message(*, message_id: str, topic: str | None, cluster: Cluster, output: Output) -> None:
    printer = MessagePrinter(output)
    message = run_with_admin(cluster, lambda admin: admin.message(message_id, topic), topic=topic)
    if message is None:
        hint = "" if topic else "; a producer's unique id needs --topic"
        raise Problem(f"no message {message_id}{hint}")
    printer.show(message)


@command.command("find", help="Show the messages of TOPIC with KEY.")
@topic_argument()
@click.argument("key")
@click.option("--limit", type=click.IntRange(1, 64), default=32, show_default=True, help="Maximum number of messages.")
@cluster_options
def find_messages(*, topic: str, key: str, limit: int, cluster: Cluster, output: Output) -> None:
    printer = MessagePrinter(output)

    async def work(admin: Administration) -> list[Received]:
        return [message async for message in admin.find(topic, key, count=limit)]

    messages = run_with_admin(cluster, work, topic=topic)
    for message in messages:
        printer.show(message)
    if not messages:
        raise Problem(f"no message with key {key} in {topic}")


@command.command("delayed", help="List delayed messages of TOPIC or of all topics, the next to be delivered first.")
@topic_argument(required=False)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of messages.")
@cluster_options
def delayed_messages(*, topic: str | None, limit: int, cluster: Cluster, output: Output) -> None:
    waiting = sorted(run_with_admin(cluster, lambda admin: _waiting(admin, topic)), key=lambda message: message.due_ms)
    show_rows(_WAITING_COLUMNS, map(_waiting_row, waiting[:limit]), output)


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


@command.command(
    "quarantined", help="List messages that brokers could not deliver and moved to rmq_sys_QUARANTINE, oldest first."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum number of messages.")
@cluster_options
def quarantined_messages(*, limit: int, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> list[Received]:
        from orbitlog.client.admin.inspection import Inspection

        messages: list[Received] = []
        async for message in Inspection(admin).quarantined():
            messages.append(message)
            if len(messages) == limit:
                break
        return messages

    show_rows(_QUARANTINE_COLUMNS, map(_quarantined_row, run_with_admin(cluster, work)), output)


def _quarantined_row(message: Received) -> dict[str, Any]:
    from orbitlog.formats.records import properties as props

    properties = message.properties
    return {
        "msgId": message.message_id,
        "storeTime": local_time(message.stored.store_timestamp_ms),
        "brokerName": message.broker_name,
        "fromTopic": printable(properties.get(props.QUARANTINE_TOPIC, "")),
        "toTopic": printable(properties.get(props.REAL_TOPIC, "")[:255]),
        "reason": printable(properties.get(props.QUARANTINE_REASON, "")),
        "omitted": printable(properties.get(props.QUARANTINE_OMITTED, "")),
        "body": body_preview(message.body),
    }


@command.command("cancel", help="Cancel the delayed message ID of TOPIC: it is never delivered.")
@topic_argument()
@click.argument("message_id", metavar="ID")
@cluster_options
def cancel_message(*, topic: str, message_id: str, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> str:
        from orbitlog.client.admin.inspection import Inspection

        for each in await _waiting(admin, topic):
            if message_id in (each.message.message_id, each.recall_handle):
                if each.recall_handle is None:
                    raise Problem(f"{message_id} waits in a delay level; brokers cannot cancel such a message")
                return await Inspection(admin).recall(each.queue.broker_name, topic, each.recall_handle)
        raise Problem(f"no delayed message {message_id} in {topic}")

    cancelled = run_with_admin(cluster, work)
    show_rows((Column("topic"), Column("msgId")), [{"topic": topic, "msgId": cancelled}], output)


@command.command(
    "trace",
    help="""Show the trace of the message ID: records of RocketMQ's message trace, and its OpenTelemetry context.

    Producers and consumers write records if message traces are enabled. A message that an instrumented client sent
    carries the trace id of OpenTelemetry; its spans are in your tracing system.""",
)
@click.argument("message_id", metavar="ID")
@click.option("--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Topic of the traces.")
@click.option("--topic", help="Topic of the message, to find its OpenTelemetry context without message traces.")
@cluster_options
def trace_message(*, message_id: str, trace_topic: str, topic: str | None, cluster: Cluster, output: Output) -> None:
    async def work(admin: Administration) -> tuple[list[TraceRecord], Received | None]:
        from orbitlog.client.admin.inspection import Inspection

        records = await Inspection(admin).traces(message_id, trace_topic)
        if topic is not None:
            return records, await admin.message(message_id, topic)
        sent_to = next((record.topic for record in records if record.topic), None)
        try:
            return records, None if sent_to is None else await admin.message(message_id, sent_to)
        except NoRoute:
            return records, None  # the topic was deleted since

    records, message = run_with_admin(cluster, work, topic=topic)
    rows = [_trace_row(record) for record in records]
    if message is not None and (context := _context_row(message)) is not None:
        rows.insert(0, context)
    if not rows:
        raise Problem(
            f"no trace of {message_id} in {trace_topic}; clients write traces only if tracing is enabled, and --topic"
            " finds the OpenTelemetry context of a message"
        )
    show_rows(_TRACE_COLUMNS, rows, output)


def _context_row(message: Received) -> dict[str, Any] | None:
    """Return the row of a message's OpenTelemetry context; None if it has none."""
    from orbitlog.formats.records.trace_context import creation_ids

    ids = creation_ids(message.properties)
    if ids is None:
        return None
    return {
        "time": local_time(message.stored.born_timestamp_ms),
        "step": "OpenTelemetry context",
        "group": printable(message.properties.get("PGROUP", "")),
        "costMs": None,
        "outcome": "sampled" if ids.is_sampled else "not sampled",
        "detail": f"trace {ids.trace_id}, span {ids.span_id}",
    }


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
