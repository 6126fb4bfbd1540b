"""The short way of an ordinary send: a frame made from a template, one future, no timer of its own.

An ordinary send has a body too small to compress, the usual time limit and no wish as to queue or moment, and its
broker is connected already: nearly all sends are such, and each costs a few dictionaries and tasks less here than in
`Sending`. Whatever is not ordinary, or fails in a way that another try may mend, goes the long way.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.error_advice import refusal
from orbitlog.client.connection.routes import Routes
from orbitlog.client.producer.outgoing import COMPRESS_BYTES_MIN, Outgoing, send_request
from orbitlog.client.producer.queue_choice import QueueChoice
from orbitlog.client.producer.receipts import STATUS_OF_CODE, Receipt
from orbitlog.errors import RequestTimeout
from orbitlog.formats import names
from orbitlog.formats.records import properties as props
from orbitlog.remoting.client import SILENT_SECONDS
from orbitlog.remoting.connection import Connection
from orbitlog.wire.bodies.body_json import MessageQueue
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command, encode_command
from orbitlog.wire.frame_start import FRAME_START_BYTES, TOTAL_BYTES, pack_frame_start
from orbitlog.wire.header_codec import parse_int, parse_long

SEND_SECONDS = 3.0
_SLOW_SECONDS = 0.5
_TEMPLATES_MAX = 4096
# Stand in for what differs from send to send while a template is made; none of them can occur in a name.
_OPAQUE, _BORN_MS, _PROPERTIES = 2_101_234_567, 7_701_234_567_890_123, "<properties>"
_PLAIN = f"{props.UNIQ_KEY}\\u0001%b\\u0002{props.WAIT}\\u0001true\\u0002".encode()


@dataclass(slots=True)
class _Template:
    """The header of a send to one queue, without the numbers and the text that differ."""

    queue: MessageQueue
    address: str
    parts: tuple[bytes, bytes, bytes, bytes]
    connection: Connection | None = None


@dataclass(slots=True)
class _Flight:
    """A send that waits for its answer."""

    deadline: float
    future: asyncio.Future[Command]
    connection: Connection
    opaque: int


class QuickSending:
    """Sends what is ordinary."""

    def __init__(self, link: ClusterLink, routes: Routes, choice: QueueChoice, group: str) -> None:
        self._link = link
        self._routes = routes
        self._choice = choice
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._templates: dict[int, _Template] = {}  # by id(): queues are told apart slowly, and routes keep theirs
        self._flights: deque[_Flight] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def ready(self, topic: str, body_bytes: int) -> tuple[_Template, Connection] | None:
        """Return by which template and connection a message can go; None if it is not ordinary."""
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
            # The long way connects; it must be this broker's turn there, or one that is not connected never is.
            self._choice.give_back(topic)
            return None
        return template, connection

    def _make_template(self, queue: MessageQueue) -> _Template:
        names.check_topic(queue.topic)
        header, _ = send_request(Outgoing(queue.topic, b"", {}), queue, self._group)
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
        """Send a message with these properties, as JSON writes them; empty stands for those that all have."""
        now_ms = time.time_ns() // 1_000_000
        properties = text or _PLAIN % unique_id.encode()
        first, second, third, fourth = template.parts
        opaque = connection.reserve_opaque()
        header = b"%b%d%b%d%b%b%b" % (first, opaque, second, now_ms, third, properties, fourth)
        lengths = pack_frame_start(TOTAL_BYTES + len(header) + len(body), len(header))
        started = self._loop.time()
        future = connection.ask_frame(opaque, b"".join((lengths, header, body)))
        self._watch(_Flight(started + SEND_SECONDS, future, connection, opaque))
        answer = await future
        if answer.code not in STATUS_OF_CODE:
            raise refusal(answer)
        now = self._loop.time()
        if now - started > _SLOW_SECONDS or self._choice.is_avoiding:
            self._choice.sent(template.queue.broker_name, int((now - started) * 1000), int(now * 1000))
        return _receipt(template.queue, unique_id, answer)

    # Time limits: all are the same, so the first in line is the first that is over

    def _watch(self, flight: _Flight) -> None:
        flights = self._flights
        while flights and flights[0].future.done():
            flights.popleft()
        flights.append(flight)
        if self._timer is None:
            self._timer = self._loop.call_at(flight.deadline, self._look)

    def _look(self) -> None:
        """Give up those whose time is over, and look again when the next one's is."""
        self._timer = None
        now, flights = self._loop.time(), self._flights
        while flights and (flights[0].future.done() or flights[0].deadline <= now):
            flight = flights.popleft()
            if not flight.future.done():
                self._give_up(flight, now)
        if flights:
            self._timer = self._loop.call_at(flights[0].deadline, self._look)

    def _give_up(self, flight: _Flight, now: float) -> None:
        connection = flight.connection
        connection.forget_request(flight.opaque)
        code = int(RequestCode.SEND_MESSAGE_V2)
        told = f"{connection.peer} did not answer request {code} within {SEND_SECONDS:g} s"
        flight.future.set_exception(RequestTimeout(told))
        if connection.idle_seconds(now) >= SILENT_SECONDS:
            connection.abort()  # gone without a word: the next one who asks dials anew

    def close(self) -> None:
        """Look after nobody any more."""
        if self._timer is not None:
            self._timer.cancel()


def _receipt(queue: MessageQueue, unique_id: str, answer: Command) -> Receipt:
    told = answer.ext_fields
    queue_id = parse_int(told.get("queueId", ""), "queueId")
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return Receipt(
        STATUS_OF_CODE[answer.code],
        unique_id,
        told.get("msgId", ""),
        queue,
        parse_long(told.get("queueOffset", ""), "queueOffset"),
        told.get("transactionId"),
        told.get("recallHandle"),
    )
