"""Sends messages: the next queue, retries on another broker, within one time limit.

Mirrors Java `DefaultMQProducerImpl.sendDefaultImpl`.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence

from orbitlog.client.cluster_link import ClusterLink
from orbitlog.client.outgoing import Outgoing, batch_request, send_request
from orbitlog.client.queue_choice import QueueChoice
from orbitlog.client.receipts import STATUS_OF_CODE, Receipt
from orbitlog.client.routes import Route, Routes
from orbitlog.errors import BrokerRefused, ClientError, NoRoute, OrbitlogError, RemotingError, RequestTimeout
from orbitlog.formats.flags import TransactionType
from orbitlog.wire.bodies.body_json import MessageQueue
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.send_headers import SendMessageResponse, SendMessageV2Request

TRIES = 3
_RETRY_CODES = frozenset(
    (
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_ERROR),
        *(ResponseCode.SYSTEM_BUSY, ResponseCode.NO_PERMISSION),
    )
)
MakeRequest = Callable[[MessageQueue], tuple[SendMessageV2Request, bytes]]


class Sending:
    """The producing half of a client."""

    def __init__(self, link: ClusterLink, routes: Routes, group: str) -> None:
        self._link = link
        self._routes = routes
        self._choice = QueueChoice()
        self.group = group

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

        def request(chosen: MessageQueue) -> tuple[SendMessageV2Request, bytes]:
            return send_request(message, chosen, self.group, transaction=transaction)

        if ordered_by is not None and queue is None:
            queue = queue_of_key((await self._route(message.topic)).write_queues, ordered_by)
        return await self._try(RequestCode.SEND_MESSAGE_V2, message.topic, message.unique_id, request, seconds, queue)

    async def send_batch(self, messages: Sequence[Outgoing], unique_id: str, *, seconds: float) -> Receipt:
        """Send several messages of one topic in one request: all of them are stored, or none."""
        if not messages:
            raise ClientError("an empty batch")
        topics = {message.topic for message in messages}
        if len(topics) > 1:
            raise ClientError(f"a batch has one topic, not {', '.join(sorted(topics))}")

        def request(chosen: MessageQueue) -> tuple[SendMessageV2Request, bytes]:
            return batch_request(messages, chosen, self.group, unique_id)

        ids = ",".join(message.unique_id for message in messages)
        return await self._try(RequestCode.SEND_BATCH_MESSAGE, messages[0].topic, ids, request, seconds, None)

    async def send_oneway(self, message: Outgoing) -> None:
        """Send without an answer: quick, and nobody knows whether it arrived."""
        queue = self._choice.choose((await self._route(message.topic)).write_queues, _now_ms())
        header, body = send_request(message, queue, self.group)
        await self._link.tell(self._address(queue), RequestCode.SEND_MESSAGE_V2, header, body)

    async def _try(  # noqa: PLR0917 - one caller each
        self,
        code: RequestCode,
        topic: str,
        message_id: str,
        request: MakeRequest,
        seconds: float,
        fixed: MessageQueue | None,
    ) -> Receipt:
        deadline = asyncio.get_running_loop().time() + seconds
        failure: OrbitlogError | None = None
        failed_broker: str | None = None
        for _ in range(TRIES):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            queue = fixed
            try:
                async with asyncio.timeout(left):
                    if queue is None:
                        queues = (await self._route(topic)).write_queues
                        queue = self._choice.choose(queues, _now_ms(), failed_broker=failed_broker)
                    return await self._send_to(queue, code, message_id, request, left)
            except TimeoutError:
                failure = RequestTimeout(f"{topic}: not sent within {seconds:g} s")
            except (RemotingError, NoRoute, BrokerRefused) as error:
                if isinstance(error, BrokerRefused) and error.code not in _RETRY_CODES:
                    raise
                failure = error
            failed_broker = queue.broker_name if queue is not None else None
            if failed_broker is not None:
                self._choice.failed(failed_broker, _now_ms())
        raise failure or RequestTimeout(f"{topic}: not sent within {seconds:g} s")

    async def _send_to(
        self, queue: MessageQueue, code: RequestCode, message_id: str, request: MakeRequest, left: float
    ) -> Receipt:
        header, body = request(queue)
        started_ms = _now_ms()
        accept = tuple(STATUS_OF_CODE)
        answer = await self._link.ask(self._address(queue), code, header, body, seconds=left, accept=accept)
        self._choice.sent(queue.broker_name, _now_ms() - started_ms, _now_ms())
        told = SendMessageResponse.from_ext_fields(answer.ext_fields)
        return Receipt(
            STATUS_OF_CODE[answer.code],
            message_id,
            told.message_id,
            MessageQueue(queue.topic, queue.broker_name, told.queue_id),
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

    def _address(self, queue: MessageQueue) -> str:
        address = self._routes.address(queue.broker_name)
        if address is None:
            raise NoRoute(f"broker {queue.broker_name} of topic {queue.topic} is not known any more")
        return address


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The same queue for the same key, as long as the topic keeps its queues."""
    return queues[zlib.crc32(key.encode()) % len(queues)]


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
