"""Producer: queue selection, retries at another broker, one time limit for all attempts.

Mirrors Java `DefaultMQProducerImpl.sendDefaultImpl`. Unlike there, a failed connect is retried until the time limit:
nothing was sent, so a retry cannot create a duplicate.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import orjson

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Route, Routes
from orbitlog.client.producer.fast_producer import SEND_SECONDS, FastProducer
from orbitlog.client.producer.outgoing import (
    COMPRESS_IN_THREAD_BYTES,
    OutgoingBatch,
    OutgoingMessage,
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
    HandshakeFailed,
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

ATTEMPTS = 3
_FIRST_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS_MAX = 0.5
_RETRY_CODES = frozenset(
    (
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR),
        *(ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION),
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,  # another server listens at the address now: see `_send_to`
    )
)
if TYPE_CHECKING:
    from orbitlog.client.producer.tracing import Tracer

_STORED_CODES = tuple(STATUS_OF_CODE)
MakeBatch = Callable[[Mapping[str, str]], OutgoingBatch]
MakeRequest = Callable[[MessageQueue], tuple[SendMessageV2Request, bytes]]


class Producer:
    """Producer of one client."""

    def __init__(self, link: ClusterLink, routes: Routes, group: str, tracer: Tracer | None = None) -> None:
        self._link = link
        self._routes = routes
        self._choice = QueueChoice()
        routes.on_new_master.append(self._choice.moved)
        self._fast = FastProducer(link, routes, self._choice, group)
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self.in_flight = 0
        self.group = group
        self._tracer = tracer

    async def send(
        self,
        message: OutgoingMessage,
        *,
        seconds: float,
        ordered_by: str | None = None,
        queue: MessageQueue | None = None,
        transaction: TransactionType = TransactionType.NONE,
    ) -> Receipt:
        """Send one message; with `ordered_by`, only to the queue of that key. Retry until `seconds` have passed."""
        message = await _ready_to_send(message)
        is_eligible = ordered_by is None and queue is None and transaction is TransactionType.NONE
        if is_eligible and not message.sys_flag and seconds == SEND_SECONDS:
            text = orjson.dumps(properties.encode_properties(message.properties).decode())[1:-1]
            sent = await self._send_fast(message.topic, message.body, message.unique_id, text)
            if sent is not None:
                return sent

        def request(chosen: MessageQueue) -> tuple[SendMessageV2Request, bytes]:
            return send_request(message, chosen, self.group, transaction=transaction)

        started_ms = time.time_ns() // 1_000_000
        receipt: Receipt | None = None
        try:
            receipt = await self._send_with_retries(
                RequestCode.SEND_MESSAGE_V2, message.topic, message.unique_id, request, seconds, queue, ordered_by
            )
            return receipt
        finally:
            if self._tracer is not None:
                is_half = transaction is not TransactionType.NONE
                self._tracer.sent(message, self.group, receipt, started_ms, is_half=is_half)

    async def send_plain(self, topic: str, body: bytes, unique_id: str) -> Receipt:
        """Send a body with default options."""
        sent = await self._send_fast(topic, body, unique_id, b"")
        if sent is not None:
            return sent
        return await self.send(make_outgoing(topic, body, unique_id), seconds=SEND_SECONDS)

    async def _send_fast(self, topic: str, body: bytes, unique_id: str, text: bytes) -> Receipt | None:
        """Send on the fast path; return None if the message must take the slow path."""
        self._check_open()
        target = None if self._tracer is not None else self._fast.ready(topic, len(body))
        if target is None:
            return None
        self.in_flight += 1
        try:
            return await self._fast.send(*target, body, unique_id, text)
        except RequestTimeout as error:
            self._failed(target[0].queue, error)
            raise RequestTimeout(f"{topic}: send timed out: {error}") from None
        except RemotingError:
            pass
        except BrokerRefused as error:
            if error.code not in _RETRY_CODES:
                raise
        finally:
            self.in_flight -= 1
        self._failed(target[0].queue)
        return None

    async def send_batch(
        self, topic: str, make: MakeBatch, unique_id: str, *, count: int, given: Mapping[str, str], seconds: float
    ) -> Receipt:
        """Send `count` messages of one topic in one request: all of them are stored, or none.

        `make` encodes them with the properties that all of them have, `given` by the user.
        """
        batch = make(given)

        def request(chosen: MessageQueue) -> tuple[SendMessageV2Request, bytes]:
            return batch_request(batch, chosen, self.group, unique_id)

        message_id = ",".join(batch.unique_ids)
        return await self._send_with_retries(RequestCode.SEND_BATCH_MESSAGE, topic, message_id, request, seconds)

    async def send_oneway(self, message: OutgoingMessage) -> None:
        """Send without response and without retry."""
        self._check_open()
        message = await _ready_to_send(message)
        queues = (await self._route(message.topic)).write_queues
        queue = self._choice.choose(queues, self._now_ms())
        header, body = send_request(message, queue, self.group)
        await self._link.invoke_oneway(self._routes.address_of(queue), RequestCode.SEND_MESSAGE_V2, header, body)

    async def finish(self, seconds: float) -> None:
        """Refuse new sends, and wait at most `seconds` for those in flight."""
        self._is_closed = True
        deadline = self._loop.time() + seconds
        while self.in_flight and self._loop.time() < deadline:  # noqa: ASYNC110 - an event would cost every send
            await asyncio.sleep(0.01)
        self._fast.close()

    async def _send_with_retries(  # noqa: PLR0917 - all parts of a send
        self,
        code: RequestCode,
        topic: str,
        message_id: str,
        request: MakeRequest,
        seconds: float,
        fixed: MessageQueue | None = None,
        ordered_by: str | None = None,
    ) -> Receipt:
        self._check_open()
        self.in_flight += 1
        try:
            return await self._send_until(
                self._loop.time() + seconds, code, topic, message_id, request, fixed, ordered_by
            )
        except TimeoutError:
            raise RequestTimeout(f"{topic}: send timed out after {seconds:g} s") from None
        finally:
            self.in_flight -= 1

    async def _send_until(  # noqa: PLR0917 - all parts of a send
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
        attempts, pause = 0, _FIRST_PAUSE_SECONDS
        while True:
            queue = fixed
            failure: OrbitlogError
            try:
                if queue is None:
                    queue = await self._queue(topic, ordered_by, failed_broker, deadline)
                return await self._send_to(queue, code, message_id, request, deadline)
            except HandshakeFailed as error:  # certificates do not change while a send waits
                failure, attempts = error, attempts + 1
            except (ConnectFailed, NoBroker) as error:
                failure = error
            except (RemotingError, NoRoute) as error:
                failure, attempts = error, attempts + 1
            except BrokerRefused as error:
                if error.code not in _RETRY_CODES:
                    raise
                failure, attempts = error, attempts + 1
            if queue is not None:
                failed_broker = queue.broker_name
                self._failed(queue, failure)
            if attempts >= ATTEMPTS or self._loop.time() + pause >= deadline:
                raise failure
            if not await self._other_broker(topic, failed_broker, deadline):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
            if self._loop.time() >= deadline:
                raise failure  # more specific than a timeout

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
        """Refresh the route, since the broker may have moved; return whether another broker serves the topic."""
        try:
            async with asyncio.timeout_at(deadline):
                route = await self._routes.freshest(topic, create=True)
        except (OrbitlogError, TimeoutError):
            return False  # the next attempt raises the error
        return any(queue.broker_name != failed_broker for queue in route.write_queues)

    async def _send_to(
        self, queue: MessageQueue, code: RequestCode, message_id: str, request: MakeRequest, deadline: float
    ) -> Receipt:
        header, body = request(queue)
        started = self._loop.time()
        address = self._routes.address_of(queue)
        left = max(deadline - started, 0.0)
        try:
            answer = await self._link.invoke(address, code, header, body, seconds=left, accept=_STORED_CODES)
        except BrokerRefused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise NoRoute(f"{address} is no longer broker {queue.broker_name}: {error.remark}") from None
            raise
        now = self._loop.time()
        self._choice.sent(queue.broker_name, int((now - started) * 1000), int(now * 1000))
        reply = SendMessageResponse.from_ext_fields(answer.ext_fields)
        if reply.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, reply.queue_id)
        return Receipt(
            STATUS_OF_CODE[answer.code],
            message_id,
            reply.message_id,
            queue,
            reply.queue_offset,
            reply.transaction_id,
            reply.recall_handle,
        )

    async def _route(self, topic: str) -> Route:
        route = await self._routes.of(topic, create=True)
        if not route.write_queues:
            route = await self._routes.refresh(topic, create=True)
        if not route.write_queues:
            raise NoRoute(f"topic {topic} has no writable queue")
        return route

    def _failed(self, queue: MessageQueue, failure: OrbitlogError | None = None) -> None:
        """Avoid the broker of a queue for a while, or until it has another master, which is looked for meanwhile."""
        self._choice.failed(queue.broker_name, self._now_ms())
        self._routes.suspect(queue.topic, silent=queue.broker_name if isinstance(failure, RequestTimeout) else None)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


async def _ready_to_send(message: OutgoingMessage) -> OutgoingMessage:
    """Compress large bodies; very large ones in a thread, so that the event loop is not blocked."""
    if not message.is_worth_compressing:
        return message
    if len(message.body) < COMPRESS_IN_THREAD_BYTES:
        return compressed(message)
    return await asyncio.to_thread(compressed, message)


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue of a key; it stays the same as long as the queues of the topic do."""
    return queues[zlib.crc32(key.encode()) % len(queues)]
