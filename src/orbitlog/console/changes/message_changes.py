"""Changes that make messages: send one, send a copy of one, and have a member consume one directly."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from orbitlog.client.admin.dead_letters import NOT_COPIED
from orbitlog.client.connection.client_identity import UniqueIdMaker
from orbitlog.client.producer.message_producer import Producer
from orbitlog.client.producer.outgoing import OutgoingMessage, make_outgoing
from orbitlog.client.producer.receipts import SendStatus
from orbitlog.console.changes.planned_change import ChangeRequest, PlanLine, PreparedChange, ResultLine
from orbitlog.console.console_call import Call
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.views.group_members import read_members
from orbitlog.console.views.known_names import sample_with_topic
from orbitlog.console.views.message_rows import preview
from orbitlog.console.views.message_view import find_message
from orbitlog.formats import names
from orbitlog.formats.records import properties as props

PRODUCER_GROUP = "orbitlog-console"
_SEND_SECONDS = 3.5  # not the default: only the slow path reports every status
_BODY_MAX = 512 * 1024


class SendRequest(ChangeRequest, kw_only=True):
    """A message to send."""

    body: Annotated[str, Meta(min_length=1, max_length=_BODY_MAX, description="Body as text", extra={"rows": 6})]
    tags: Annotated[str, Meta(max_length=255)] = ""
    keys: Annotated[str, Meta(max_length=1024, description="Separated by spaces")] = ""
    properties: Annotated[str, Meta(max_length=8192, description="One name=value a line", extra={"rows": 3})] = ""
    order_key: Annotated[str, Meta(max_length=255, description="Messages with the same key go to one queue")] = ""
    delay_seconds: Annotated[float, Meta(ge=0, le=365 * 86_400, description="Deliver later; 0 for now")] = 0


class CopyRequest(ChangeRequest, kw_only=True):
    """Where a copy of a message is sent."""

    topic: Annotated[str, Meta(max_length=255, description="Topic of the message, for ids of producers")] = ""
    to_topic: Annotated[str, Meta(max_length=255, description="Target; empty for the topic of the message")] = ""


class DeliveryRequest(ChangeRequest, kw_only=True):
    """The member that consumes a message again."""

    topic: Annotated[str, Meta(max_length=255, description="Topic of the message, for ids of producers")] = ""
    group: Annotated[str, Meta(min_length=1, max_length=255)]
    client: Annotated[str, Meta(max_length=512, description="Client id of the member; empty for any")] = ""


async def prepare_send(call: Call) -> PreparedChange:
    request, topic = call.query, call.path["topic"]
    await _require_sendable(call, topic)
    outgoing = make_outgoing(
        topic,
        request.body,
        UniqueIdMaker().make(),
        tags=request.tags or None,
        keys=request.keys.split(),
        user_properties=_user_properties(request.properties),
        delay=request.delay_seconds or None,
        ordered_by=request.order_key or None,
    )
    return _sending(call, outgoing, "send message", f"send one message to topic {topic}", request.order_key or None)


async def prepare_copy(call: Call) -> PreparedChange:
    request = call.query
    message = await find_message(call.cluster, call.path["message"], request.topic)
    to_topic = request.to_topic or message.properties.get(props.RETRY_TOPIC) or message.stored.topic
    await _require_sendable(call, to_topic)
    given = message.properties
    not_own = NOT_COPIED | {props.KEYS, props.TAGS, props.RETRY_TOPIC}
    outgoing = make_outgoing(
        to_topic,
        message.body,
        UniqueIdMaker().make(),
        tags=given.get(props.TAGS),
        keys=given.get(props.KEYS, "").split(),
        user_properties={name: value for name, value in given.items() if name not in not_own},
        flag=message.stored.flag,
    )
    return _sending(call, outgoing, "send copy", f"send a copy of {message.message_id} to topic {to_topic}", None)


def _sending(
    call: Call, outgoing: OutgoingMessage, action: str, sentence: str, order_key: str | None
) -> PreparedChange:
    shown = {"topic": outgoing.topic, "body": f"{len(outgoing.body):,} bytes: {preview(outgoing.body)}"}
    hidden = (props.UNIQ_KEY, props.WAIT)
    shown |= {f"property {name}": value for name, value in outgoing.properties.items() if name not in hidden}

    async def apply() -> list[ResultLine]:
        admin = call.cluster.admin
        producer = Producer(admin.link, admin.routes, PRODUCER_GROUP)
        receipt = await producer.send(outgoing, seconds=_SEND_SECONDS, ordered_by=order_key)
        place = f"{receipt.queue.broker_name} queue {receipt.queue.queue_id}, offset {receipt.queue_offset:,}"
        done = receipt.status is SendStatus.SENT
        result = f"stored at {place}" if done else f"stored at {place}, {receipt.status.value}"
        return [ResultLine(what=receipt.offset_message_id or receipt.message_id, done=done, result=result)]

    return PreparedChange(
        action=action,
        target=outgoing.topic,
        sentence=sentence,
        lines=[PlanLine(what=name, before=None, after=value) for name, value in shown.items()],
        apply=apply,
        state=[outgoing.topic],  # times and ids of the plan differ each time
    )


async def _require_sendable(call: Call, topic: str) -> None:
    if not names.is_sendable_topic(topic):
        raise ConsoleError(400, f"{topic[:130]} is not a topic to send to")
    await sample_with_topic(call.cluster, topic)


def _user_properties(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, separator, value = line.strip().partition("=")
        if not line.strip():
            continue
        if not separator or not name:
            raise ConsoleError(400, f"{line[:80]!r} is not a property: write name=value")
        found[name] = value
    return found


async def prepare_delivery(call: Call) -> PreparedChange:
    request, source = call.query, call.cluster
    message = await find_message(source, call.path["message"], request.topic)
    sample = await source.sample()
    members = await read_members(source, sample, request.group)
    if not members.clients:
        raise ConsoleError(409, f"group {request.group[:130]} has no connected member")
    client = request.client or next(iter(members.clients))
    if client not in members.clients:
        raise ConsoleError(404, f"no member {client[:130]!r} of group {request.group[:130]} is connected")
    host = str(message.stored.store_host)
    broker = next((broker for broker in sample.brokers if broker.address == host), None)
    if broker is None:
        raise ConsoleError(404, f"the broker {host} of the message is not registered in this cluster")
    if broker.name not in members.clients[client][1]:
        raise ConsoleError(
            409, f"member {client[:130]} is not connected to broker {broker.name}, which has the message"
        )

    async def apply() -> list[ResultLine]:
        result = await source.groups.consume_directly(broker.address, request.group, client, message)
        words = f"{result.result or 'no result'} in {result.spent_ms} ms{f': {result.remark}' if result.remark else ''}"
        return [ResultLine(what=client, done=result.result == "CR_SUCCESS", result=words)]

    return PreparedChange(
        action="deliver message",
        target=message.message_id,
        sentence=f"deliver message {message.message_id} to one member of group {request.group}",
        lines=[PlanLine(what="member", before=None, after=client)],
        apply=apply,
        warnings=["the member consumes the message again; no offset is committed for it"],
    )
