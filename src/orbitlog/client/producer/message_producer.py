"""Sends messages: the next queue, retries on another broker, within one time limit.

Mirrors Java `DefaultMQProducerImpl.sendDefaultImpl`. Unlike there, a send waits for a broker that nobody could be
connected to, as long as its time allows: nothing was sent, so that trying again cannot make a second copy.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import orjson

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Route, Routes
from orbitlog.client.producer.fast_producer import SEND_SECONDS, QuickSending
from orbitlog.client.producer.outgoing import (
    COMPRESS_ASIDE_BYTES,
    Outgoing,
    OutgoingBatch,
    batch_request,
    compressed,
    make_outgoing,
    send_request,
)
from orbitlog.client.producer.queue_choice import QueueChoice
from orbitlog.client.producer.receipts import STATUS_OF_CODE, Receipt
from orbitlog.errors import (
    BrokerRefused,
    ClientClosed,
    ConnectFailed,
    NoBroker,
    NoRoute,
    OrbitlogError,
    RemotingError,
    RequestTimeout,
)
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties
from orbitlog.formats.records.flags import TransactionType
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.send_headers import SendMessageResponse, SendMessageV2Request

TRIES = 3
_FIRST_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 0.5
_RETRY_CODES = frozenset(
    (
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR),
        *(ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION),
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,  # no broker listens there any more, but somebody else: see `_send_to`
    )
)
if TYPE_CHECKING:
    from orbitlog.client.producer.tracing import Tracer

_STORED_CODES = tuple(STATUS_OF_CODE)
MakeRequest = Callable[[MessageQueue], tuple[SendMessageV2Request, bytes]]


class Sending:
    """The producing half of a client."""

    def __init__(self, link: ClusterLink, routes: Routes, group: str) -> None:
        self._link = link
        self._routes = routes
        self._choice = QueueChoice()
        self._quick = QuickSending(link, routes, self._choice, group)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self.in_flight = 0
        self.group = group
        self.tracer: Tracer | None = None

    async def send(
        self,
        message: Outgoing,
        *,
        seconds: float,
        ordered_by: str | None = None,
        queue: MessageQueue | None = None,
        transaction: TransactionType = TransactionType.NONE,
    ) -> Receipt:
        """Send one message. One that is ordered goes to the queue of its key and to no other."""
        message = await _ready_to_send(message)
        is_ordinary = ordered_by is None and queue is None and transaction is TransactionType.NONE
        if is_ordinary and not message.sys_flag and seconds == SEND_SECONDS:
            text = orjson.dumps(properties.encode_properties(message.properties).decode())[1:-1]
            sent = await self._send_quickly(message.topic, message.body, message.unique_id, text)
            if sent is not None:
                return sent

        def request(chosen: MessageQueue) -> tuple[SendMessageV2Request, bytes]:
            return send_request(message, chosen, self.group, transaction=transaction)

        started_ms = time.time_ns() // 1_000_000
        receipt: Receipt | None = None
        try:
            receipt = await self._try(
                RequestCode.SEND_MESSAGE_V2, message.topic, message.unique_id, request, seconds, queue, ordered_by
            )
            return receipt
        finally:
            if self.tracer is not None:
                is_half = transaction is not TransactionType.NONE
                self.tracer.sent(message, self.group, receipt, started_ms, is_half=is_half)

    async def send_plain(self, topic: str, body: bytes, unique_id: str) -> Receipt:
        """Send a body with nothing else said about it."""
        sent = await self._send_quickly(topic, body, unique_id, b"")
        if sent is not None:
            return sent
        return await self.send(make_outgoing(topic, body, unique_id), seconds=SEND_SECONDS)

    async def _send_quickly(self, topic: str, body: bytes, unique_id: str, text: bytes) -> Receipt | None:
        """Send an ordinary message the short way; None if it must go the long one."""
        self._refuse_when_closed()
        way = None if self.tracer is not None else self._quick.ready(topic, len(body))
        if way is None:
            return None
        self.in_flight += 1
        try:
            return await self._quick.send(*way, body, unique_id, text)
        except RequestTimeout as error:
            raise RequestTimeout(f"{topic}: not sent in time: {error}") from None
        except RemotingError:
            pass
        except BrokerRefused as error:
            if error.code not in _RETRY_CODES:
                raise
        finally:
            self.in_flight -= 1
        self._choice.failed(way[0].queue.broker_name, self._now_ms())
        return None

    async def send_batch(self, batch: OutgoingBatch, unique_id: str, *, seconds: float) -> Receipt:
        """Send several messages of one topic in one request: all of them are stored, or none."""

        def request(chosen: MessageQueue) -> tuple[SendMessageV2Request, bytes]:
            return batch_request(batch, chosen, self.group, unique_id)

        message_id = ",".join(batch.unique_ids)
        return await self._try(RequestCode.SEND_BATCH_MESSAGE, batch.topic, message_id, request, seconds)

    async def send_oneway(self, message: Outgoing) -> None:
        """Send and hope: no answer, no retry."""
        self._refuse_when_closed()
        message = await _ready_to_send(message)
        queues = (await self._route(message.topic)).write_queues
        queue = self._choice.choose(queues, self._now_ms())
        header, body = send_request(message, queue, self.group)
        await self._link.tell(self._routes.address_of(queue), RequestCode.SEND_MESSAGE_V2, header, body)

    async def finish(self, seconds: float) -> None:
        """Take nothing more, and wait for what is on its way, at most so long."""
        self._is_closed = True
        deadline = self._loop.time() + seconds
        while self.in_flight and self._loop.time() < deadline:  # noqa: ASYNC110 - sends should not pay for an event
            await asyncio.sleep(0.01)
        self._quick.close()

    async def _try(  # noqa: PLR0917 - what a send is made of
        self,
        code: RequestCode,
        topic: str,
        message_id: str,
        request: MakeRequest,
        seconds: float,
        fixed: MessageQueue | None = None,
        ordered_by: str | None = None,
    ) -> Receipt:
        self._refuse_when_closed()
        self.in_flight += 1
        try:
            return await self._try_until(
                self._loop.time() + seconds, code, topic, message_id, request, fixed, ordered_by
            )
        except TimeoutError:
            raise RequestTimeout(f"{topic}: not sent within {seconds:g} s") from None
        finally:
            self.in_flight -= 1

    async def _try_until(  # noqa: PLR0917 - what a send is made of
        self,
        deadline: float,
        code: RequestCode,
        topic: str,
        message_id: str,
        request: MakeRequest,
        fixed: MessageQueue | None,
        ordered_by: str | None,
    ) -> Receipt:
        failed_broker: str | None = None
        tries, pause = 0, _FIRST_PAUSE_SECONDS
        while True:
            queue = fixed
            failure: OrbitlogError
            try:
                if queue is None:
                    queue = await self._queue(topic, ordered_by, failed_broker, deadline)
                return await self._send_to(queue, code, message_id, request, deadline)
            except (ConnectFailed, NoBroker) as error:
                failure = error
            except (RemotingError, NoRoute) as error:
                failure, tries = error, tries + 1
            except BrokerRefused as error:
                if error.code not in _RETRY_CODES:
                    raise
                failure, tries = error, tries + 1
            if queue is not None:
                failed_broker = queue.broker_name
                self._choice.failed(failed_broker, self._now_ms())
            if tries >= TRIES or self._loop.time() + pause >= deadline:
                raise failure
            if not await self._other_broker(topic, failed_broker, deadline):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
            if self._loop.time() >= deadline:
                raise failure  # it says more than that no time was left

    async def _queue(
        self, topic: str, ordered_by: str | None, failed_broker: str | None, deadline: float
    ) -> MessageQueue:
        route = self._routes.known(topic)
        if route is None or not route.write_queues:
            async with asyncio.timeout_at(deadline):
                route = await self._route(topic)
        if ordered_by is not None:
            return queue_of_key(route.write_queues, ordered_by)
        return self._choice.choose(route.write_queues, self._now_ms(), failed_broker=failed_broker)

    async def _other_broker(self, topic: str, failed_broker: str | None, deadline: float) -> bool:
        """Look where the topic is now: the broker may be back elsewhere. Tell whether another one has it, too."""
        try:
            async with asyncio.timeout_at(deadline):
                route = await self._routes.freshest(topic, create=True)
        except (OrbitlogError, TimeoutError):
            return False  # whatever is wrong, the next try will tell
        return any(queue.broker_name != failed_broker for queue in route.write_queues)

    async def _send_to(
        self, queue: MessageQueue, code: RequestCode, message_id: str, request: MakeRequest, deadline: float
    ) -> Receipt:
        header, body = request(queue)
        started = self._loop.time()
        address = self._routes.address_of(queue)
        left = max(deadline - started, 0.0)
        try:
            answer = await self._link.ask(address, code, header, body, seconds=left, accept=_STORED_CODES)
        except BrokerRefused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise NoRoute(f"{queue.broker_name} is not at {address} any more: {error.remark}") from None
            raise
        now = self._loop.time()
        self._choice.sent(queue.broker_name, int((now - started) * 1000), int(now * 1000))
        told = SendMessageResponse.from_ext_fields(answer.ext_fields)
        if told.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, told.queue_id)
        return Receipt(
            STATUS_OF_CODE[answer.code],
            message_id,
            told.message_id,
            queue,
            told.queue_offset,
            told.transaction_id,
            told.recall_handle,
        )

    async def _route(self, topic: str) -> Route:
        route = await self._routes.of(topic, create=True)
        if not route.write_queues:
            route = await self._routes.refresh(topic, create=True)
        if not route.write_queues:
            raise NoRoute(f"topic {topic} has no queue that can be written to")
        return route

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


async def _ready_to_send(message: Outgoing) -> Outgoing:
    """Compress what is large; what is very large in a thread, since it would stop the event loop for too long."""
    if not message.is_worth_compressing:
        return message
    if len(message.body) < COMPRESS_ASIDE_BYTES:
        return compressed(message)
    return await asyncio.to_thread(compressed, message)


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The same queue for the same key, as long as the topic keeps its queues."""
    return queues[zlib.crc32(key.encode()) % len(queues)]
