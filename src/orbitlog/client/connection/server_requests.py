"""Requests that brokers send to clients: transaction checks, rebalance notices, offset resets, replies.

Mirrors Java `ClientRemotingProcessor`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.client.producer.request_reply import RequestReply
from orbitlog.client.producer.transactions import Transactions
from orbitlog.errors import RequestRefused
from orbitlog.formats.records.message import decode_message
from orbitlog.remoting.connection import NO_ANSWER, Answer, Connection
from orbitlog.remoting.request_dispatch import Dispatch
from orbitlog.wire.bodies.body_json import decode_body, encode_body
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.consume_headers import (
    ConsumeDirectlyRequest,
    ConsumerGroupRequest,
    ConsumerRunningInfoRequest,
    ConsumerStatusRequest,
    ResetConsumerRequest,
)

log = logging.getLogger(__name__)


class ServerRequests:
    """Handlers of the requests that brokers send to this client; rarely used bodies are imported on demand."""

    def __init__(
        self,
        consumer_of: Callable[[str], Consumer | None],
        name_servers: str,
        transactions: Transactions,
        request_reply: RequestReply,
    ) -> None:
        self._consumer_of = consumer_of
        self._name_servers = name_servers
        self._transactions = transactions
        self._request_reply = request_reply
        self._tasks: set[asyncio.Task[None]] = set()
        self._dispatch = Dispatch(
            {
                RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset,
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._status,
                RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
                RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply,
            }
        )

    def __call__(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        return self._dispatch(connection, request)

    def _check_transaction(self, connection: Connection, request: Command) -> Answer:
        self._start(self._transactions.answer_check(connection, request))
        return NO_ANSWER

    def _reply(self, _: Connection, request: Command) -> Answer:
        return self._request_reply.receive(request)

    def _members_changed(self, _: Connection, request: Command) -> Answer:
        consumer = self._consumer_of(ConsumerGroupRequest.from_ext_fields(request.ext_fields).group)
        if consumer is not None:
            consumer.membership_changed()
        return response_to(request, ResponseCode.SUCCESS)

    async def _reset(self, _: Connection, request: Command) -> Answer:
        from orbitlog.wire.bodies.queue_bodies import QueueOffsetTable

        header = ResetConsumerRequest.from_ext_fields(request.ext_fields)
        table = decode_body(QueueOffsetTable, request.body)
        await self._member(header.group).assignment.reset(dict(table.offsets))
        return response_to(request, ResponseCode.SUCCESS)

    def _status(self, _: Connection, request: Command) -> Answer:
        from orbitlog.wire.bodies.queue_bodies import ConsumerStatus

        header = ConsumerStatusRequest.from_ext_fields(request.ext_fields)
        feeds = self._member(header.group).assignment.feeds
        offsets = {queue: feed.window.commit_offset for queue, feed in feeds.items() if queue.topic == header.topic}
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(ConsumerStatus(queues=offsets)))

    def _running_info(self, _: Connection, request: Command) -> Answer:
        from orbitlog.client.connection.running_info import running_info

        header = ConsumerRunningInfoRequest.from_ext_fields(request.ext_fields)
        info = running_info(self._member(header.group), self._name_servers)
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(info))

    async def _consume_directly(self, _: Connection, request: Command) -> Answer:
        from orbitlog.wire.bodies.client_bodies import ConsumeDirectlyResult

        header = ConsumeDirectlyRequest.from_ext_fields(request.ext_fields)
        consumer = self._member(header.group)
        started = time.monotonic()
        done = await consumer.consume_directly(decode_message(request.body))
        result = ConsumeDirectlyResult(
            {True: "CR_SUCCESS", False: "CR_LATER", None: "CR_THROW_EXCEPTION"}[done],
            ordered=consumer.options.orderly,
            remark=None if done is not None else "the consumer did not take the message in time",
            spent_ms=int((time.monotonic() - started) * 1000),
        )
        return response_to(request, ResponseCode.SUCCESS, body=encode_body(result))

    def _member(self, group: str) -> Consumer:
        consumer = self._consumer_of(group)
        if consumer is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"this client has no consumer of group {group[:255]}")
        return consumer

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("could not answer a broker's request", exc_info=failure)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
