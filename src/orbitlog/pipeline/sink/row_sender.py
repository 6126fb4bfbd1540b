"""Row sender: sends rows in batches with a limit of requests in flight; rows of a chosen queue keep their order.

A request that got no answer may have been stored, so its first message is looked up before it is repeated: a batch is
stored as a whole or not at all. A connection that could not be opened has sent nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from orbitlog.client.connection.routes import Route
from orbitlog.client.producer.message_producer import queue_of_key
from orbitlog.client.producer.outgoing import OutgoingMessage, compressed, send_request
from orbitlog.client.producer.queue_choice import QueueChoice
from orbitlog.client.producer.receipts import STATUS_OF_CODE
from orbitlog.errors import BrokerRefused, ClientError, ConnectFailed, NoRoute, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import properties
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.pipeline.network.cluster_session import ClusterSession
from orbitlog.pipeline.network.pull_pace import PullPace
from orbitlog.pipeline.sink.batch_frames import BatchFrames, batch_header
from orbitlog.pipeline.sink.encoded_rows import EncodedRows, FailedRow, RequestRows, RowRun, SinkRow
from orbitlog.pipeline.sink.request_tasks import RequestTasks
from orbitlog.pipeline.sink.row_texts import QueueOfRow
from orbitlog.pipeline.sink.side_tables import SentRow
from orbitlog.pipeline.sink.sink_marks import BegunMark, HalfMessage
from orbitlog.pipeline.sink.sink_options import SinkOptions
from orbitlog.pipeline.sink.stored_check import StoredCheck
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command
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
_STORED_CODES = tuple(STATUS_OF_CODE)


@dataclass(slots=True)
class _Group:
    """Rows of one topic that wait until they fill a request."""

    topic: str
    queue: MessageQueue | None
    rows: RequestRows = field(default_factory=RequestRows)


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
        self._frames = BatchFrames(options.producer_group)
        self._requests = RequestTasks(options.sends_in_flight)
        self._feeding: asyncio.Task[None] | None = None
        self._last_of_queue: dict[MessageQueue, asyncio.Task[None]] = {}
        self.sent = 0
        self.found = 0
        self.failed: list[FailedRow] = []
        self.halves: list[HalfMessage] = []
        self.sent_rows: list[SentRow] = []
        self._pace = PullPace(options.rows_per_second_max)

    async def send(self, rows: EncodedRows) -> None:
        """Send rows; return when the rows before them are in requests, so that the caller can encode others."""
        await self._fed()
        self._feeding = asyncio.get_running_loop().create_task(self._feed(rows))

    async def finish(self) -> None:
        """Send the rest, and wait for all acknowledgements."""
        await self._fed()
        for group in list(self._groups.values()):
            await self._start(group)
        self._groups.clear()
        await self._requests.finish()

    async def cancel(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)
        await self._requests.cancel()

    async def _fed(self) -> None:
        if self._feeding is not None:
            await self._feeding

    async def _feed(self, rows: EncodedRows) -> None:
        for run in rows.runs():
            topic, target = rows.target(run.start)
            try:
                queue = await self._chosen_queue(topic, target)
            except ClientError as error:
                if isinstance(error, NoRoute | BrokerRefused):
                    raise
                self.failed += [SinkRow(rows, index).failed(str(error)) for index in range(run.start, run.stop)]
                continue
            await self._join(topic, queue, run)

    async def _join(self, topic: str, queue: MessageQueue | None, run: RowRun) -> None:
        """Add rows to the group of their topic and queue; send each group that the next row does not fit into."""
        key = topic, queue
        group = self._groups.get(key) or _Group(topic, queue)
        while len(run):
            fitting = self._fitting(group.rows, run)
            if not fitting:
                await self._start(group)
                group = _Group(topic, queue)
                continue
            joining, run = run.split(fitting)
            group.rows.add(joining)
        self._groups[key] = group

    def _fitting(self, rows: RequestRows, run: RowRun) -> int:
        """Return how many rows may join; at least one, of any size, if the request is empty."""
        is_single = self._options.is_transactional or run.rows.is_single(run.start)
        if not rows.count:
            return 1 if is_single else max(run.fitting(self._options.batch_rows, self._options.batch_bytes), 1)
        if is_single or rows.is_single:
            return 0
        return run.fitting(self._options.batch_rows - rows.count, self._options.batch_bytes - rows.size_bytes)

    async def _start(self, group: _Group) -> None:
        await self._requests.wait_for_room()
        if pause := self._pace.pause(len(group.rows), time.monotonic()):
            await asyncio.sleep(pause)
        previous = None if group.queue is None else self._last_of_queue.get(group.queue)
        task = self._requests.start(self._deliver(group, previous))
        if group.queue is not None:
            self._last_of_queue[group.queue] = task

    async def _deliver(self, group: _Group, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait({previous})
            previous.result()
        rows = group.rows
        if self._check is not None:
            rows = RequestRows.of(await self._check.missing(group.rows))
            self.found += len(group.rows) - len(rows)
            missing = set(rows)
            self._record(SentRow(row) for row in group.rows if row not in missing)
        if rows.count:
            await self._send_or_split(group, rows)

    async def _send_or_split(self, group: _Group, rows: RequestRows) -> None:
        """Send rows in one request; if the broker refuses a batch as invalid, send each row to find the invalid one."""
        try:
            await self._send_until_stored(group, rows)
            self.sent += len(rows)
        except BrokerRefused as error:
            if error.code not in _REFUSED_ROW_CODES:
                raise
            if len(rows) == 1:
                self.failed.append(rows.first.failed(str(error)))
                return
            for row in rows:
                await self._send_or_split(group, RequestRows.of([row]))

    async def _send_until_stored(self, group: _Group, rows: RequestRows) -> None:
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
                address = self._session.routes.address_of(queue)
                if not self._options.is_transactional and await self._ambiguous.was_stored(
                    address, group.topic, rows.first.unique_id
                ):
                    self._record(SentRow(row, queue.broker_name, queue.queue_id) for row in rows)
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

    async def _request(self, queue: MessageQueue, rows: RequestRows) -> None:
        self._begun.add(queue.broker_name)
        address = self._session.routes.address_of(queue)
        answer = await self._answer(address, queue, rows)
        if self._choice.is_avoiding:
            self._choice.sent(queue.broker_name, 0, _now_ms())
        if self._options.is_transactional:
            reply = SendMessageResponse.from_ext_fields(answer.ext_fields)
            self.halves.append(_half(queue, rows.first, reply))
            self._record([SentRow(rows.first, queue.broker_name)])
        elif self._options.sent_rows_path is not None:
            reply = SendMessageResponse.from_ext_fields(answer.ext_fields)
            # The members of a batch have successive offsets of one queue.
            place = queue.broker_name, reply.queue_id
            self._record(SentRow(row, *place, reply.queue_offset + number) for number, row in enumerate(rows))

    async def _answer(self, address: str, queue: MessageQueue, rows: RequestRows) -> Command:
        link = self._session.link
        if rows.count == 1:
            header, body = self._single_request(queue, rows.first)
            return await link.invoke(
                address, RequestCode.SEND_MESSAGE_V2, header, body, seconds=_SEND_SECONDS, accept=_STORED_CODES
            )
        code = RequestCode.SEND_BATCH_MESSAGE
        if link.signs:
            header, body = batch_header(queue, self._options.producer_group), b"".join(rows.members())
            return await link.invoke(address, code, header, body, seconds=_SEND_SECONDS, accept=_STORED_CODES)
        make_frame = partial(self._frames.frame, queue, rows)
        return await link.invoke_frame(address, code, make_frame, seconds=_SEND_SECONDS, accept=_STORED_CODES)

    def _record(self, rows: Iterable[SentRow]) -> None:
        if self._options.sent_rows_path is not None:
            self.sent_rows += rows

    def _single_request(self, queue: MessageQueue, row: SinkRow) -> tuple[SendMessageV2Request, bytes]:
        group, text, transaction = self._options.producer_group, row.properties_raw.decode(), TransactionType.NONE
        if self._options.is_transactional:
            added = {properties.TRANSACTION_PREPARED: "true", properties.PRODUCER_GROUP: group}
            text += properties.encode_properties(added).decode()
            transaction = TransactionType.PREPARED
        message = OutgoingMessage(row.topic, row.body, {}, row.flag)
        if message.is_worth_compressing:
            message = compressed(message)
        header, body = send_request(message, queue, group, transaction=transaction)
        header.properties = text
        return header, body

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

    async def _chosen_queue(self, topic: str, target: QueueOfRow) -> MessageQueue | None:
        """Return the queue that rows ask for; None if any will do."""
        if target.queue_id is None and target.sharding_key is None:
            return None
        queues = (await self._route(topic)).write_queues
        if target.sharding_key is not None:
            return queue_of_key(queues, target.sharding_key)
        matching = [
            queue
            for queue in queues
            if queue.queue_id == target.queue_id and target.broker_name in (None, queue.broker_name)
        ]
        if not matching:
            at = f" at {target.broker_name}" if target.broker_name else ""
            raise ClientError(f"topic {topic} has no writable queue {target.queue_id}{at}")
        if len(matching) > 1:
            names = ", ".join(queue.broker_name for queue in matching)
            raise ClientError(f"queue {target.queue_id} of topic {topic} exists at {names}; give the column brokerName")
        return matching[0]


def _half(queue: MessageQueue, row: SinkRow, reply: SendMessageResponse) -> HalfMessage:
    physical_offset = parse_offset_message_id(reply.message_id).physical_offset
    return HalfMessage(queue.topic, queue.broker_name, row.unique_id, reply.queue_offset, physical_offset)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
