"""Row sender: sends rows in batches with a limit of requests in flight; rows of a chosen queue keep their order.

A request that got no answer may have been stored, so its first message is looked up before it is repeated: a batch is
stored as a whole or not at all. A connection that could not be opened has sent nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from orbitlog.client.connection.routes import Route
from orbitlog.client.producer.message_producer import queue_of_key
from orbitlog.client.producer.outgoing import OutgoingBatch, batch_request, compressed, send_request
from orbitlog.client.producer.queue_choice import QueueChoice
from orbitlog.client.producer.receipts import STATUS_OF_CODE
from orbitlog.errors import BrokerRefused, ClientError, ConnectFailed, NoRoute, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties
from orbitlog.formats.records.batch import batch_member_parts
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.pipeline.network.cluster_session import ClusterSession
from orbitlog.pipeline.network.pull_pace import PullPace
from orbitlog.pipeline.sink.side_tables import SentRow
from orbitlog.pipeline.sink.sink_columns import FailedRow, SinkRow
from orbitlog.pipeline.sink.sink_marks import BegunMark, HalfMessage
from orbitlog.pipeline.sink.sink_options import SinkOptions
from orbitlog.pipeline.sink.stored_check import StoredCheck
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.send_headers import SendMessageResponse, SendMessageV2Request

_SEND_SECONDS = 10.0
_FIRST_PAUSE_S, _PAUSE_S_MAX = 0.05, 1.0
_BUSY_CODES = (
    ResponseCode.FLOW_CONTROL,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.TOPIC_NOT_EXIST,  # a new topic that the broker has not created yet
)
_REFUSED_ROW_CODES = (ResponseCode.MESSAGE_ILLEGAL,)
_MEMBER_OVERHEAD_BYTES = 100


@dataclass(slots=True)
class _Group:
    """Rows of one topic for one request."""

    topic: str
    queue: MessageQueue | None
    rows: list[SinkRow] = field(default_factory=list)
    size_bytes: int = 0


class RowSender:
    """Sends the rows of one task."""

    def __init__(
        self, session: ClusterSession, options: SinkOptions, check: StoredCheck | None, begun: BegunMark
    ) -> None:
        self._session = session
        self._begun = begun
        self._options = options
        self._check = check
        self._ambiguous = StoredCheck(session)
        self._choice = QueueChoice()
        self._groups: dict[tuple[str, MessageQueue | None], _Group] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_of_queue: dict[MessageQueue, asyncio.Task[None]] = {}
        self.sent = 0
        self.found = 0
        self.failed: list[FailedRow] = []
        self.halves: list[HalfMessage] = []
        self.sent_rows: list[SentRow] = []
        self._pace = PullPace(options.rows_per_second_max)

    async def send(self, rows: Sequence[SinkRow]) -> None:
        """Send rows; return when all but `sendsInFlight` requests are acknowledged."""
        for row in rows:
            try:
                queue = await self._chosen_queue(row)
            except ClientError as error:
                if isinstance(error, NoRoute | BrokerRefused):
                    raise
                self.failed.append(FailedRow(row.batch, row.index, str(error)))
                continue
            key = row.message.topic, queue
            group = self._groups.setdefault(key, _Group(row.message.topic, queue))
            size_bytes = (
                len(row.message.body)
                + _MEMBER_OVERHEAD_BYTES
                + sum(len(name) + len(value) for name, value in row.message.properties.items())
            )
            is_full = group.size_bytes + size_bytes > self._options.batch_bytes
            if group.rows and (is_full or not self._joins(group, row)):
                await self._start(self._groups.pop(key))
                group = self._groups[key] = _Group(row.message.topic, queue)
            group.rows.append(row)
            group.size_bytes += size_bytes

    def _joins(self, group: _Group, row: SinkRow) -> bool:
        is_single = self._options.is_transactional or not row.is_batchable or not group.rows[0].is_batchable
        return not is_single and len(group.rows) < self._options.batch_rows

    async def finish(self) -> None:
        """Send the rest, and wait for all acknowledgements."""
        for group in list(self._groups.values()):
            await self._start(group)
        self._groups.clear()
        while self._tasks:
            await self._wait()

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start(self, group: _Group) -> None:
        while len(self._tasks) >= self._options.sends_in_flight:
            await self._wait()
        if pause := self._pace.pause(len(group.rows), time.monotonic()):
            await asyncio.sleep(pause)
        previous = None if group.queue is None else self._last_of_queue.get(group.queue)
        task = asyncio.get_running_loop().create_task(self._deliver(group, previous))
        self._tasks.add(task)
        if group.queue is not None:
            self._last_of_queue[group.queue] = task

    async def _wait(self) -> None:
        done, self._tasks = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _deliver(self, group: _Group, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
            previous.result()
        rows = group.rows
        if self._check is not None:
            rows = await self._check.missing(rows)
            self.found += len(group.rows) - len(rows)
            missing = {id(row) for row in rows}
            self._record([SentRow(row) for row in group.rows if id(row) not in missing])
        if rows:
            await self._send_or_split(group, rows)

    async def _send_or_split(self, group: _Group, rows: Sequence[SinkRow]) -> None:
        """Send rows in one request; if the broker refuses a batch as invalid, send each row to find the invalid one."""
        try:
            await self._send_until_stored(group, rows)
            self.sent += len(rows)
        except BrokerRefused as error:
            if error.code not in _REFUSED_ROW_CODES:
                raise
            if len(rows) == 1:
                self.failed.append(FailedRow(rows[0].batch, rows[0].index, str(error)))
                return
            for row in rows:
                await self._send_or_split(group, [row])

    async def _send_until_stored(self, group: _Group, rows: Sequence[SinkRow]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._session.options.broker_timeout_s
        failed_broker, pause = None, _FIRST_PAUSE_S
        while True:
            queue: MessageQueue | None = None
            try:
                queue = group.queue or await self._any_queue(group.topic, failed_broker)
                await self._request(queue, rows)
                return
            except (ConnectFailed, NoRoute) as error:
                problem = str(error)
            except BrokerRefused as error:
                if error.code not in _BUSY_CODES:
                    raise
                problem = str(error)
            except RemotingError as error:
                problem = str(error)
                assert queue is not None
                message = rows[0].message
                address = self._session.routes.address_of(queue)
                if not self._options.is_transactional and await self._ambiguous.was_stored(
                    address, message.topic, message.unique_id
                ):
                    self._record([SentRow(row, queue.broker_name, queue.queue_id) for row in rows])
                    return
            if queue is not None:
                failed_broker = queue.broker_name
                self._choice.failed(failed_broker, _now_ms())
            if loop.time() + pause >= deadline:
                raise BrokerUnavailable(
                    f"could not send to topic {group.topic}: {problem}; brokerTimeoutMs sets how long to retry"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_S_MAX)
            # A name server that was restarted has no routes until brokers register: the known ones are kept.
            with suppress(NoRoute):
                await self._session.routes.freshest(group.topic, create=True)

    async def _request(self, queue: MessageQueue, rows: Sequence[SinkRow]) -> None:
        code, header, body = self._encoded(queue, rows)
        self._begun.add(queue.broker_name)
        answer = await self._session.link.invoke(
            self._session.routes.address_of(queue),
            code,
            header,
            body,
            seconds=_SEND_SECONDS,
            accept=tuple(STATUS_OF_CODE),
        )
        self._choice.sent(queue.broker_name, 0, _now_ms())
        reply = SendMessageResponse.from_ext_fields(answer.ext_fields)
        if self._options.is_transactional:
            self.halves.append(_half(queue, rows[0], reply))
            self._record([SentRow(rows[0], queue.broker_name)])
            return
        # The members of a batch have successive offsets of one queue.
        place = queue.broker_name, reply.queue_id
        self._record([SentRow(row, *place, reply.queue_offset + number) for number, row in enumerate(rows)])

    def _record(self, rows: list[SentRow]) -> None:
        if self._options.sent_rows_path is not None:
            self.sent_rows += rows

    def _encoded(self, queue: MessageQueue, rows: Sequence[SinkRow]) -> tuple[RequestCode, SendMessageV2Request, bytes]:
        group = self._options.producer_group
        if len(rows) > 1:
            parts: list[bytes] = []
            for row in rows:
                message = row.message
                parts += batch_member_parts(
                    message.body, properties.encode_properties(message.properties), message.flag
                )
            batch = OutgoingBatch(queue.topic, [row.message.unique_id for row in rows], b"".join(parts))
            header, body = batch_request(batch, queue, group, rows[0].message.unique_id)
            # No id of the batch itself: Apache 4.9 appends the properties of a batch to each member, and the last
            # UNIQ_KEY wins, so all rows would have the same id.
            header.properties = properties.encode_properties({properties.WAIT: "true"}).decode()
            return RequestCode.SEND_BATCH_MESSAGE, header, body
        message = rows[0].message
        transaction = TransactionType.NONE
        if self._options.is_transactional:
            message.properties[properties.TRANSACTION_PREPARED] = "true"
            message.properties[properties.PRODUCER_GROUP] = group
            transaction = TransactionType.PREPARED
        if message.is_worth_compressing:
            message = compressed(message)
        return RequestCode.SEND_MESSAGE_V2, *send_request(message, queue, group, transaction=transaction)

    # Queues

    async def _route(self, topic: str) -> Route:
        route = await self._session.routes.of(topic, create=True)
        if not route.write_queues:
            route = await self._session.routes.refresh(topic, create=True)
        if not route.write_queues:
            raise NoRoute(f"topic {topic} has no writable queue")
        return route

    async def _any_queue(self, topic: str, failed_broker: str | None) -> MessageQueue:
        route = await self._route(topic)
        return self._choice.choose(route.write_queues, _now_ms(), failed_broker=failed_broker)

    async def _chosen_queue(self, row: SinkRow) -> MessageQueue | None:
        """Return the queue that the row asks for; None if any will do."""
        if row.queue_id is None and row.sharding_key is None:
            return None
        topic = row.message.topic
        queues = (await self._route(topic)).write_queues
        if row.sharding_key is not None:
            return queue_of_key(queues, row.sharding_key)
        matching = [
            queue for queue in queues if queue.queue_id == row.queue_id and row.broker_name in (None, queue.broker_name)
        ]
        if not matching:
            at = f" at {row.broker_name}" if row.broker_name else ""
            raise ClientError(f"topic {topic} has no writable queue {row.queue_id}{at}")
        if len(matching) > 1:
            names = ", ".join(queue.broker_name for queue in matching)
            raise ClientError(f"queue {row.queue_id} of topic {topic} exists at {names}; give the column brokerName")
        return matching[0]


def _half(queue: MessageQueue, row: SinkRow, reply: SendMessageResponse) -> HalfMessage:
    physical_offset = parse_offset_message_id(reply.message_id).physical_offset
    return HalfMessage(queue.topic, queue.broker_name, row.message.unique_id, reply.queue_offset, physical_offset)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
