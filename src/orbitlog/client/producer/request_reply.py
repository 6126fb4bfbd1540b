"""Request and reply: a message that is answered by whoever consumes it.

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
from orbitlog.client.producer.outgoing import Outgoing
from orbitlog.client.producer.producer_sends import Sending
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
    """What came back."""

    body: bytes
    properties: dict[str, str]

    @property
    def text(self) -> str:
        return self.body.decode()


class Asking:
    """Requests that wait for their replies."""

    def __init__(self, link: ClusterLink, routes: Routes, sending: Sending, client_id: str) -> None:
        self._link = link
        self._routes = routes
        self._sending = sending
        self._client_id = client_id
        self._waiting: dict[str, asyncio.Future[Reply]] = {}

    async def ask(self, message: Outgoing, introduce: Callable[[str], Awaitable[None]], *, seconds: float) -> Reply:
        """Send a request and wait for its reply; brokers must know this client before, so `introduce` comes first."""
        correlation = str(uuid.uuid4())
        message.properties[CORRELATION_ID] = correlation
        message.properties[REPLY_TO_CLIENT] = self._client_id
        message.properties[TIME_TO_LIVE] = str(int(seconds * 1000))
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[correlation] = future
        try:
            async with asyncio.timeout(seconds):
                await introduce(message.topic)
                await self._sending.send(message, seconds=seconds)
                return await future
        except TimeoutError:
            raise RequestTimeout(f"{message.topic}: nobody replied within {seconds:g} s") from None
        finally:
            self._waiting.pop(correlation, None)

    def take(self, request: Command) -> Answer:
        """A broker brings a reply."""
        header = PushReplyRequest.from_ext_fields(request.ext_fields)
        told = properties.decode_properties(utf8_encode(header.properties or ""))
        future = self._waiting.get(told.get(CORRELATION_ID, ""))
        if future is not None and not future.done():
            future.set_result(Reply(inflate_body(request.body, header.sys_flag), told))
        return response_to(request, ResponseCode.SUCCESS)

    async def reply(self, to: Received, body: bytes, unique_id: str) -> None:
        """Answer a request that was consumed."""
        asked = to.properties
        if REPLY_TO_CLIENT not in asked or CORRELATION_ID not in asked:
            raise ClientError(f"message {to.message_id} does not ask for a reply")
        address = self._routes.address(to.broker_name)
        if address is None:
            raise NoRoute(f"broker {to.broker_name} is not known any more")
        told = {name: asked[name] for name in (CORRELATION_ID, REPLY_TO_CLIENT, TIME_TO_LIVE) if name in asked}
        told |= {_MESSAGE_TYPE: _REPLY, properties.UNIQ_KEY: unique_id, properties.WAIT: "true"}
        header = SendMessageV2Request(
            producer_group=self._sending.group,
            topic=asked.get(properties.CLUSTER, "DefaultCluster") + names.REPLY_TOPIC_SUFFIX,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_count=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp_ms=time.time_ns() // 1_000_000,
            flag=0,
            properties=properties.encode_properties(told).decode(),
        )
        await self._link.ask(address, RequestCode.SEND_REPLY_MESSAGE_V2, header, body)
