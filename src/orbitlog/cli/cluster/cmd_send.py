"""`orbitlog send` and `orbitlog message send`: sends messages from the command line or from standard input."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from orbitlog.cli.cluster.cluster_options import cluster_options
from orbitlog.cli.cluster_connection import run_with_client
from orbitlog.cli.contexts import Cluster
from orbitlog.cli.main import WrongUse
from orbitlog.cli.name_completion import topic_argument
from orbitlog.cli.output.json_rows import Output
from orbitlog.cli.output.row_output import check_template

if TYPE_CHECKING:
    from orbitlog.client.producer.receipts import Receipt
    from orbitlog.client.rocketmq import RocketMQ

_FIELDS = ("status", "msgId", "offsetMsgId", "topic", "brokerName", "queueId", "queueOffset")
_JSON_FIELDS = {
    "body": str,
    "tags": str,
    "keys": (str, list),
    "properties": dict,
    "delay": (int, float),
    "orderedBy": str,
}


class Draft(NamedTuple):
    """A message to send, with the options that override those of the command line."""

    body: str | bytes
    options: dict[str, Any]


@click.command(
    "send",
    help="""Send messages to a topic of a running cluster.

    Each BODY is one message; - reads standard input: every line is a message, with --input json a JSON object with
    body, tags, keys, properties, delay and orderedBy, with --input raw the whole input is one message. Prints the queue
    and offset of each stored message; exit 1 if a send failed.""",
)
@topic_argument()
@click.argument("bodies", metavar="BODY...", nargs=-1, required=True)
@click.option("--tags", help="Tag of the messages.")
@click.option("--key", "keys", multiple=True, help="Key of the messages; may be repeated.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="Property of the messages; may be repeated."
)
@click.option("--delay", type=float, help="Delay of the delivery in seconds.")
@click.option("--ordered-by", help="Sharding key: messages with the same value stay in order.")
@click.option(
    "--input", "form", type=click.Choice(["lines", "json", "raw"]), default="lines", help="Form of standard input."
)
@click.option(
    "--in-flight",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Maximum sends in flight. More than 1 is faster but does not preserve order.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the number of messages sent.")
@cluster_options
def command(
    *,
    topic: str,
    bodies: tuple[str, ...],
    properties: tuple[str, ...],
    form: str,
    in_flight: int,
    quiet: bool,
    cluster: Cluster,
    output: Output,
    **given: Any,
) -> None:
    template = check_template(output, _FIELDS)
    shared = {**given, "properties": dict(map(_property, properties))}

    def print_receipt(receipt: Receipt) -> None:
        if quiet:
            return
        if template is not None:
            click.echo(template.text(_row(receipt)), nl=False)
        else:
            click.echo(json.dumps(_row(receipt)) if output.as_json else _line(receipt))

    async def work(mq: RocketMQ) -> int:
        from orbitlog.cli.cluster.sending_window import send_all

        async def send(draft: Draft) -> Receipt:
            return await mq.send(topic, draft.body, **_merged(shared, draft.options))

        return await send_all(_drafts(bodies, form), send, print_receipt, in_flight=in_flight)

    sent = run_with_client(cluster, work, topic=topic)
    if quiet:
        click.echo(json.dumps({"sent": sent}) if output.as_json else f"{sent} sent")


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise WrongUse(f"--property {text!r} is not NAME=VALUE")
    return name, value


def _merged(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    merged = {**shared, **own}
    merged["properties"] = {**shared["properties"], **own.get("properties", {})}
    return merged


async def _drafts(bodies: tuple[str, ...], form: str) -> AsyncIterator[Draft]:
    from orbitlog.cli.cluster.sending_window import input_lines, whole_input

    for body in bodies:
        if body != "-":
            yield Draft(body, {})
        elif form == "raw":
            yield Draft(await whole_input(), {})
        else:
            number = 0
            async for line in input_lines():
                number += 1
                if line.strip():
                    yield Draft(line, {}) if form == "lines" else _draft_of_json(line, number)


def _draft_of_json(line: bytes, number: int) -> Draft:
    """Parse one JSON object; raise `WrongUse` for an unknown field or a wrong type."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise WrongUse(f"line {number} of the input is not valid JSON: {error}") from None
    if not isinstance(fields, dict) or "body" not in fields:
        raise WrongUse(f"line {number} of the input is not a JSON object with a body")
    for name, value in fields.items():
        if name not in _JSON_FIELDS:
            raise WrongUse(f"line {number} of the input: unknown field {name!r}; available: {', '.join(_JSON_FIELDS)}")
        if value is not None and not isinstance(value, _JSON_FIELDS[name]):  # type: ignore[arg-type] # a type or a tuple
            raise WrongUse(f"line {number} of the input: invalid {name}: {json.dumps(value)[:40]}")
    options = {name: value for name, value in fields.items() if name != "body" and value is not None}
    if "orderedBy" in options:
        options["ordered_by"] = options.pop("orderedBy")
    if "properties" in options:
        options["properties"] = {str(key): str(value) for key, value in options["properties"].items()}
    return Draft(fields["body"], options)


def _row(receipt: Receipt) -> dict[str, Any]:
    queue = receipt.queue
    return {
        "status": str(receipt.status),
        "msgId": receipt.message_id,
        "offsetMsgId": receipt.offset_message_id,
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "queueOffset": receipt.queue_offset,
    }


def _line(receipt: Receipt) -> str:
    queue = receipt.queue
    position = f"{queue.topic} {queue.broker_name}:{queue.queue_id} at {receipt.queue_offset}"
    return f"{receipt.message_id}  {position}  {receipt.status}"
