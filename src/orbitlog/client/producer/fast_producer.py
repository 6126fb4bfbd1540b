"""Fast path of a send: the frame is built from a template, with one future and no timer of its own.

A send is eligible if its body is too small to compress, it has the default timeout, no delay and no chosen queue, and
the connection to its broker is open. This holds for nearly all sends, and saves several dictionaries and tasks each.
All other sends, and those that fail with a retriable error, take the slow path in `Producer`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.error_advice import refusal
from orbitlog.client.connection.routes import Routes
from orbitlog.client.producer.outgoing import COMPRESS_BYTES_MIN, OutgoingMessage, send_request
from orbitlog.client.producer.queue_choice import QueueChoice
from orbitlog.client.producer.receipts import STATUS_OF_CODE, Receipt
from orbitlog.errors import RequestTimeout
from orbitlog.formats import names
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties as props
from orbitlog.remoting.client import SILENT_SECONDS
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frame_start import FRAME_START_BYTES, TOTAL_BYTES, pack_frame_start
from orbitlog.wire.header_codec import parse_int, parse_long

SEND_SECONDS = 3.0
_SLOW_SECONDS = 0.5
_TEMPLATES_MAX = 4096
# Placeholders for the varying fields of a template. A topic or group name contains neither `<` nor a number this long,
# so splitting the encoded header at them cannot hit anything else.
_OPAQUE, _BORN_MS, _PROPERTIES = 2_101_234_567, 7_701_234_567_890_123, "<properties>"
_PLAIN = f"{props.UNIQ_KEY}\\u0001%b\\u0002{props.WAIT}\\u0001true\\u0002".encode()


@dataclass(slots=True)
class _Template:
    """Encoded header of a send to one queue, split at opaque number, timestamp and properties."""

    queue: MessageQueue
    address: str
    parts: tuple[bytes, bytes, bytes, bytes]
    connection: Connection | None = None


@dataclass(slots=True)
class _PendingSend:
    """A send in send."""

    deadline: float
    future: asyncio.Future[Command]
    connection: Connection
    opaque: int


class FastProducer:
    """Sends eligible messages by template."""

    def __init__(self, link: ClusterLink, routes: Routes, choice: QueueChoice, group: str) -> None:
        self._link = link
        self._routes = routes
        self._choice = choice
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._templates: dict[int, _Template] = {}  # by id(): cheaper than hashing; routes keep their queues alive
        self._pending: deque[_PendingSend] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, topic: str, body_bytes: int) -> tuple[_Template, Connection] | None:
        """Return template and open connection for the next queue; None if the send is not eligible."""
        route = self._routes.known(topic)
        if route is None or not route.write_queues or body_bytes >= COMPRESS_BYTES_MIN or self._link.signs:
            return None
        queue = self._choice.choose(route.write_queues, int(self._loop.time() * 1000))
        template = self._templates.get(id(queue))
        address = self._routes.address(queue.broker_name)
        if template is None or template.queue is not queue or template.address != address:
            template = self._make_template(queue)
        connection = template.connection
        if connection is None or connection.is_closed:
            connection = template.connection = self._link.open_connection(template.address)
        if connection is None:
            # The slow path opens the connection. Return the turn, so that it picks the same broker: otherwise a broker
            # without a connection would never get one.
            self._choice.return_turn(topic)
            return None
        return template, connection

    def _make_template(self, queue: MessageQueue) -> _Template:
        names.check_topic(queue.topic)
        header, _ = send_request(OutgoingMessage(queue.topic, b"", {}), queue, self._group)
        header.born_timestamp_ms, header.properties = _BORN_MS, _PROPERTIES
        command = Command(RequestCode.SEND_MESSAGE_V2, _OPAQUE, ext_fields=header.to_ext_fields())
        first, rest = encode_command(command)[FRAME_START_BYTES:].split(b"%d" % _OPAQUE)
        second, rest = rest.split(b"%d" % _BORN_MS)
        third, fourth = rest.split(_PROPERTIES.encode())
        if len(self._templates) >= _TEMPLATES_MAX:
            self._templates.clear()
        template = _Template(queue, self._routes.address_of(queue), (first, second, third, fourth))
        self._templates[id(queue)] = template
        return template

    async def send(
        self, template: _Template, connection: Connection, body: bytes, unique_id: str, text: bytes
    ) -> Receipt:
        """Send a message; `text` holds its properties as JSON text, or is empty for the default properties."""
        now_ms = time.time_ns() // 1_000_000
        properties = text or _PLAIN % unique_id.encode()
        first, second, third, fourth = template.parts
        opaque = connection.outgoing.reserve_opaque()
        header = b"%b%d%b%d%b%b%b" % (first, opaque, second, now_ms, third, properties, fourth)
        lengths = pack_frame_start(TOTAL_BYTES + len(header) + len(body), len(header))
        started = self._loop.time()
        future = connection.outgoing.send_frame(opaque, b"".join((lengths, header, body)))
        self._watch(_PendingSend(started + SEND_SECONDS, future, connection, opaque))
        answer = await future
        if answer.code not in STATUS_OF_CODE:
            raise refusal(answer)
        now = self._loop.time()
        if now - started > _SLOW_SECONDS or self._choice.is_avoiding:
            self._choice.sent(template.queue.broker_name, int((now - started) * 1000), int(now * 1000))
        return _receipt(template.queue, unique_id, answer)

    # Timeouts: all sends have the same, so the oldest one expires first and one timer serves all

    def _watch(self, send: _PendingSend) -> None:
        pending = self._pending
        while pending and pending[0].future.done():
            pending.popleft()
        pending.append(send)
        if self._timer is None:
            self._timer = self._loop.call_at(send.deadline, self._expire)

    def _expire(self) -> None:
        """Fail the sends whose time limit has passed; schedule the timer for the next one."""
        self._timer = None
        now, pending = self._loop.time(), self._pending
        while pending and (pending[0].future.done() or pending[0].deadline <= now):
            send = pending.popleft()
            if not send.future.done():
                self._fail(send, now)
        if pending:
            self._timer = self._loop.call_at(pending[0].deadline, self._expire)

    def _fail(self, send: _PendingSend, now: float) -> None:
        connection = send.connection
        connection.outgoing.forget(send.opaque)
        code = int(RequestCode.SEND_MESSAGE_V2)
        problem = f"{connection.peer} did not answer request {code} within {SEND_SECONDS:g} s"
        send.future.set_exception(RequestTimeout(problem))
        if connection.idle_seconds(now) >= SILENT_SECONDS:
            connection.abort()  # silent peer: the next request opens a new connection

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


def _receipt(queue: MessageQueue, unique_id: str, answer: Command) -> Receipt:
    fields = answer.ext_fields
    queue_id = parse_int(fields.get("queueId", ""), "queueId")
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return Receipt(
        STATUS_OF_CODE[answer.code],
        unique_id,
        fields.get("msgId", ""),
        queue,
        parse_long(fields.get("queueOffset", ""), "queueOffset"),
        fields.get("transactionId"),
        fields.get("recallHandle"),
    )
