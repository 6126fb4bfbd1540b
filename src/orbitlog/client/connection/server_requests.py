"""Requests that brokers send to clients: transaction checks, rebalance notices, offset resets, replies.

Mirrors Java `ClientRemotingProcessor`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from orbitlog.client.consumer.group_consumer import Consumer
from orbitlog.client.producer.request_reply import RequestReply
from orbitlog.client.producer.transactions import Transactions
from orbitlog.errors import FormatError, RequestRefused
from orbitlog.formats.records.message import decode_message
from orbitlog.remoting.connection import NO_ANSWER, Answer, Connection
from orbitlog.remoting.flow import Repeated
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

CHECKS_MAX = 2_000
"""Transaction checks in work; Java's `checkRequestHoldMax`."""
CHECK_BYTES_MAX = 64 * 1024 * 1024


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
        self._checks: dict[asyncio.Task[None], int] = {}  # with the bytes of their messages
        self._check_bytes = 0
        self._dropped, self._failed = Repeated(), Repeated()
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
        """Begin a check; drop it if too many are in work: no response delays the broker, and it repeats the check."""
        if len(self._checks) >= CHECKS_MAX or self._check_bytes >= CHECK_BYTES_MAX:
            if self._dropped.is_worth_a_line():
                count, dropped = len(self._checks), self._dropped.count
                log.warning("transaction checks dropped: %d so far, %d are in work", dropped, count)
            return NO_ANSWER
        task = asyncio.get_running_loop().create_task(self._transactions.answer_check(connection, request))
        self._checks[task] = len(request.body)
        self._check_bytes += len(request.body)
        task.add_done_callback(self._ended)
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

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._check_bytes -= self._checks.pop(task)
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, RequestRefused | FormatError):
            if self._failed.is_worth_a_line():
                log.warning("malformed transaction check (%d so far): %s", self._failed.count, failure)
        elif failure is not None:
            log.error("could not answer a broker's request", exc_info=failure)

    async def stop(self) -> None:
        for task in self._checks:
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
