"""Request-reply: a message whose consumer sends a reply to the producer.

Mirrors Java `DefaultMQProducerImpl.request`, `MessageUtil.createReplyMessage`, `ClientRemotingProcessor`.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import AUTO_CREATE_TOPIC, Routes
from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.message_producer import Producer
from orbitlog.client.producer.outgoing import OutgoingMessage
from orbitlog.errors import ClientError, NoRoute, RequestTimeout
from orbitlog.formats import names
from orbitlog.formats.java import utf8_encode
from orbitlog.formats.records import properties
from orbitlog.formats.records.compression import inflate_body
from orbitlog.remoting.connection import Answer
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.send_headers import PushReplyRequest, SendMessageV2Request

CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TIME_TO_LIVE = "TTL"
_MESSAGE_TYPE = "MSG_TYPE"
_REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to a request.

    Example:
        async def answer():
            async for message in mq.consume("Prices", group="price-service", start_from="first"):
                await mq.reply(message, "42")

        service = asyncio.create_task(answer())
        reply = await mq.request("Prices", "how much?", timeout=30)
        print(reply.text, reply.properties)
        service.cancel()
    """

    body: bytes
    properties: dict[str, str]

    @property
    def text(self) -> str:
        """The body, decoded as UTF-8."""
        return self.body.decode()


class RequestReply:
    """Requests in flight, and replies to consumed requests."""

    def __init__(self, link: ClusterLink, routes: Routes, producer: Producer, client_id: str) -> None:
        self._link = link
        self._routes = routes
        self._producer = producer
        self._client_id = client_id
        self._pending: dict[str, asyncio.Future[Reply]] = {}

    async def request(
        self, message: OutgoingMessage, register: Callable[[str], Awaitable[None]], *, seconds: float
    ) -> Reply:
        """Send a request and wait for its reply; `register` must have made this client known to the broker before."""
        correlation = str(uuid.uuid4())
        message.properties[CORRELATION_ID] = correlation
        message.properties[REPLY_TO_CLIENT] = self._client_id
        message.properties[TIME_TO_LIVE] = str(int(seconds * 1000))
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pending[correlation] = future
        try:
            async with asyncio.timeout(seconds):
                await register(message.topic)
                await self._producer.send(message, seconds=seconds)
                return await future
        except TimeoutError:
            raise RequestTimeout(f"{message.topic}: no reply within {seconds:g} s") from None
        finally:
            self._pending.pop(correlation, None)

    def receive(self, request: Command) -> Answer:
        """Handle PUSH_REPLY_MESSAGE_TO_CLIENT: complete the request with this correlation id."""
        header = PushReplyRequest.from_ext_fields(request.ext_fields)
        decoded = properties.decode_properties(utf8_encode(header.properties or ""))
        future = self._pending.get(decoded.get(CORRELATION_ID, ""))
        if future is not None and not future.done():
            future.set_result(Reply(inflate_body(request.body, header.sys_flag), decoded))
        return response_to(request, ResponseCode.SUCCESS)

    async def reply(self, to: Received, body: bytes, unique_id: str) -> None:
        """Send the reply to a consumed request."""
        request = to.properties
        if REPLY_TO_CLIENT not in request or CORRELATION_ID not in request:
            raise ClientError(f"message {to.message_id} does not expect a reply")
        address = self._routes.address(to.broker_name)
        if address is None:
            raise NoRoute(f"no address of broker {to.broker_name}")
        reply = {name: request[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TIME_TO_LIVE) if name in request}
        reply |= {_MESSAGE_TYPE: _REPLY, properties.UNIQ_KEY: unique_id, properties.WAIT: "true"}
        header = SendMessageV2Request(
            producer_group=self._producer.group,
            topic=request.get(properties.CLUSTER, "DefaultCluster") + names.REPLY_TOPIC_SUFFIX,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_count=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp_ms=time.time_ns() // 1_000_000,
            flag=0,
            properties=properties.encode_properties(reply).decode(),
        )
        await self._link.invoke(address, RequestCode.SEND_REPLY_MESSAGE_V2, header, body)
