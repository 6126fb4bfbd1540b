"""Ends of transactions, and check requests to producers. Mirrors `EndTransactionProcessor`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.flush_queue import FlushQueue, once_flushed
from orbitlog.broker.sending.message_writer import refuse
from orbitlog.broker.transactions.half_messages import HalfMessages, origin_of
from orbitlog.broker.transactions.transaction_ends import TransactionEnds
from orbitlog.errors import FormatError, RemotingError, RequestRefused
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import Message, encode_message, record_version
from orbitlog.formats.records.message_id import OffsetMessageId
from orbitlog.formats.records.real_target import RealTarget, real_target
from orbitlog.remoting.connection import NO_ANSWER, Answer, Connection
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to
from orbitlog.wire.send_headers import CheckTransactionRequest, EndTransactionRequest

log = logging.getLogger(__name__)

MayPublish = Callable[[str, Connection, str], bool]
"""Returns whether an account may send to a topic over a connection."""


class TransactionHandler:
    """Serves END_TRANSACTION, and sends CHECK_TRANSACTION_STATE."""

    def __init__(
        self,
        state: BrokerState,
        halves: HalfMessages,
        ends: TransactionEnds,
        flushes: FlushQueue | None = None,
        *,
        may_publish: MayPublish | None = None,
    ) -> None:
        """With `may_publish`, a half message is shown only to producers that may send to its topic."""
        self._may_publish = may_publish
        self._state = state
        self._halves = halves
        self._ends = ends
        self._flushes = flushes
        self._turn = 0

    def __call__(self, connection: Connection, request: Command) -> Answer:
        header = EndTransactionRequest.from_ext_fields(request.ext_fields)
        if header.commit_or_rollback not in (TransactionType.COMMIT, TransactionType.ROLLBACK):
            return NO_ANSWER  # the producer does not know yet: the transaction check will ask it
        half, properties, target = self._checked(header)
        origin = origin_of(half, properties)
        is_first_end = origin not in self._ends  # else this copy is ended, and nothing is stored a second time
        if is_first_end and header.commit_or_rollback == TransactionType.COMMIT:
            stored = self._halves.commit(half, properties)
            if not stored.is_stored:
                refuse(stored)
        if is_first_end:
            is_commit = header.commit_or_rollback == TransactionType.COMMIT
            self._state.statistics.observers.transaction_ended(target.topic, is_commit, half.born_timestamp_ms)
        if request.is_oneway and self._halves.can_end_together:
            self._ends.write_soon(half.queue_offset)
            self._ends.note(origin)
            return NO_ANSWER
        ended = self._halves.end(half.queue_offset)
        if not ended.is_stored:
            refuse(ended)
        self._ends.note(origin)
        return once_flushed(self._flushes, ended.end, connection, request, response_to(request, ResponseCode.SUCCESS))

    def _checked(self, header: EndTransactionRequest) -> tuple[Message, dict[str, str], RealTarget]:
        """Return the half message of a request, its properties and target.

        Raise `RequestRefused` if they do not match.
        """
        half_message = self._halves.find(header.half_physical_offset)
        if half_message is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        half, properties = half_message
        if properties.get(props.PRODUCER_GROUP) != header.producer_group:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.half_queue_offset:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        try:
            target = real_target(properties)
        except FormatError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the half message has no valid target: {error}") from None
        return half, properties, target

    # Transaction checks

    def can_ask(self, producer_group: str) -> bool:
        """Return whether a producer of the group is connected."""
        return bool(self._state.clients.producers(producer_group))

    def _askable(self, producer_group: str, topic: str) -> list[Connection]:
        """Return the connections of a group's producers; any client may join a group, and a check has the message."""
        connections = []
        for producer in self._state.clients.producers(producer_group):
            connection = producer.connection
            assert isinstance(connection, Connection)
            if self._may_publish is None or self._may_publish(producer.account, connection, topic):
                connections.append(connection)
        return connections

    def ask(self, half: Message, copy: Message) -> bool:
        """Ask one producer of the group, in turn; its END_TRANSACTION will have the offsets of the copy.

        Return False if no producer could be asked.
        """
        properties = half.properties
        try:
            target = real_target(properties)
        except FormatError:
            target = RealTarget(copy.topic, copy.queue_id)  # its producer may still roll it back
        connections = self._askable(properties.get(props.PRODUCER_GROUP, ""), target.topic)
        if not connections:
            return False
        self._turn += 1
        connection = connections[self._turn % len(connections)]
        unique_id = properties.get(props.UNIQ_KEY)
        header = CheckTransactionRequest(
            half_queue_offset=copy.queue_offset,
            half_physical_offset=copy.physical_offset,
            message_id=unique_id,
            transaction_id=unique_id,
            offset_message_id=str(OffsetMessageId(copy.store_host, copy.physical_offset)),
            topic=target.topic,
            broker_name=self._state.broker_name,
        )
        real = copy._replace(topic=target.topic, queue_id=target.queue_id, version=record_version(target.topic))
        command = Command(
            RequestCode.CHECK_TRANSACTION_STATE, ext_fields=header.to_ext_fields(), body=encode_message(real)
        )
        try:
            connection.request_oneway(command)
        except RemotingError as error:
            log.warning("transaction check of %s failed, will retry: %s", unique_id, error)
            return False
        return True
