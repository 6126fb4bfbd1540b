"""`orbitlog send` and `orbitlog message send`: messages from the command line or from standard input."""

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
    """A message to be sent, and the words that differ from those of the command line."""

    body: str | bytes
    words: dict[str, Any]


@click.command(
    "send",
    help="""Send messages to a topic of a running cluster.

    Each BODY is one message; - takes standard input: every line is a message, or with --input json a JSON object
    with body, tags, keys, properties, delay and orderedBy, or with --input raw all of it is one. Prints where each
    message is when a broker has it; exit 1 if one could not be sent.""",
)
@topic_argument()
@click.argument("bodies", metavar="BODY...", nargs=-1, required=True)
@click.option("--tags", help="Tag of the messages.")
@click.option("--key", "keys", multiple=True, help="A key to find the messages by; may be given several times.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; several times.")
@click.option("--delay", type=float, help="Deliver after so many seconds.")
@click.option("--ordered-by", help="Messages with the same value stay in order.")
@click.option("--input", "form", type=click.Choice(["lines", "json", "raw"]), default="lines", help="What - reads.")
@click.option(
    "--in-flight",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="So many wait for their broker at once; more than one is faster, and keeps no order.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only how many were sent.")
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

    def tell(receipt: Receipt) -> None:
        if quiet:
            return
        if template is not None:
            click.echo(template.text(_facts(receipt)), nl=False)
        else:
            click.echo(json.dumps(_facts(receipt)) if output.as_json else _line(receipt))

    async def work(mq: RocketMQ) -> int:
        from orbitlog.cli.cluster.sending_window import send_all

        async def send(draft: Draft) -> Receipt:
            return await mq.send(topic, draft.body, **_merged(shared, draft.words))

        return await send_all(_drafts(bodies, form), send, tell, in_flight=in_flight)

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
    """Read one object; what is not meant is said, not ignored."""
    try:
        told = json.loads(line)
    except ValueError as error:
        raise WrongUse(f"line {number} of the input is no JSON: {error}") from None
    if not isinstance(told, dict) or "body" not in told:
        raise WrongUse(f"line {number} of the input is no JSON object with a body")
    for name, value in told.items():
        if name not in _JSON_FIELDS:
            raise WrongUse(f"line {number} of the input: no field {name!r}; there are {', '.join(_JSON_FIELDS)}")
        if value is not None and not isinstance(value, _JSON_FIELDS[name]):  # type: ignore[arg-type] # a type or a tuple
            raise WrongUse(f"line {number} of the input: {name} cannot be {json.dumps(value)[:40]}")
    words = {name: value for name, value in told.items() if name != "body" and value is not None}
    if "orderedBy" in words:
        words["ordered_by"] = words.pop("orderedBy")
    if "properties" in words:
        words["properties"] = {str(key): str(value) for key, value in words["properties"].items()}
    return Draft(told["body"], words)


def _facts(receipt: Receipt) -> dict[str, Any]:
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
    place = f"{queue.topic} {queue.broker_name}:{queue.queue_id} at {receipt.queue_offset}"
    return f"{receipt.message_id}  {place}  {receipt.status}"
