"""Transactional messages: half messages, commit and rollback, and transaction checks by the broker.

Mirrors Java `DefaultMQProducerImpl.sendMessageInTransaction` and `checkTransactionState`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.received import NamespacedMessage, Received
from orbitlog.client.producer.message_producer import Producer
from orbitlog.client.producer.outgoing import OutgoingMessage
from orbitlog.client.producer.receipts import Receipt
from orbitlog.errors import ClientError, OrbitlogError, RemotingError
from orbitlog.formats.records import properties
from orbitlog.formats.records.flags import TransactionType
from orbitlog.formats.records.message import decode_message
from orbitlog.formats.records.message_id import parse_offset_message_id
from orbitlog.remoting.connection import Connection
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command
from orbitlog.wire.send_headers import CheckTransactionRequest, EndTransactionRequest

log = logging.getLogger(__name__)

Outcome = bool | None
"""True commits, False rolls back, None leaves the transaction open for a check by the broker."""
Branch = Callable[[Receipt], Awaitable[Outcome] | Outcome]
Check = Callable[[Received], Awaitable[Outcome] | Outcome]

_TYPES = {True: TransactionType.COMMIT, False: TransactionType.ROLLBACK, None: TransactionType.NONE}


class Transactions:
    """Transactions of one producer group."""

    def __init__(self, link: ClusterLink, routes: Routes, producer: Producer, namespace: str = "") -> None:
        self._link = link
        self._routes = routes
        self._producer = producer
        self._namespace = namespace
        self._check: Check | None = None

    def register_check(self, check: Check) -> None:
        """Use `check` to answer the transaction checks of brokers; it replaces an earlier one."""
        self._check = check

    async def send(self, message: OutgoingMessage, branch: Branch, *, seconds: float) -> tuple[Receipt, Outcome]:
        """Send a half message, run the branch, and commit if it returns True; roll back if it raises."""
        message.properties[properties.TRANSACTION_PREPARED] = "true"
        message.properties[properties.PRODUCER_GROUP] = self._producer.group
        receipt = await self._producer.send(message, seconds=seconds, transaction=TransactionType.PREPARED)
        outcome: Outcome = False
        try:
            outcome = await _outcome_of(branch(receipt))
        except (asyncio.CancelledError, _NoOutcome):
            outcome = None  # unknown: left to a transaction check
            raise
        finally:
            await self._end(receipt, outcome)
        return receipt, outcome

    async def _end(self, receipt: Receipt, outcome: Outcome) -> None:
        """Send commit or rollback to the broker, once: a broker that misses it checks the transaction later."""
        header = EndTransactionRequest(
            producer_group=self._producer.group,
            half_queue_offset=receipt.queue_offset,
            half_physical_offset=parse_offset_message_id(receipt.offset_message_id).physical_offset,
            commit_or_rollback=_TYPES[outcome],
            message_id=receipt.message_id,
            transaction_id=receipt.message_id,
            topic=receipt.queue.topic,
        )
        try:
            await self._link.invoke_oneway(self._routes.address_of(receipt.queue), RequestCode.END_TRANSACTION, header)
        except OrbitlogError as error:
            log.warning("could not end transaction %s; the broker will check it: %s", receipt.message_id, error)

    async def answer_check(self, connection: Connection, request: Command) -> None:
        """Handle CHECK_TRANSACTION_STATE. If `check` raises, nothing is sent, and the broker checks later."""
        header = CheckTransactionRequest.from_ext_fields(request.ext_fields)
        if self._check is None:
            log.warning(
                "cannot answer the check of transaction %s: register a function with `check_transactions`",
                header.transaction_id,
            )
            return
        message = NamespacedMessage(decode_message(request.body), header.broker_name or "", self._namespace)
        outcome = await _outcome_of(self._check(message))
        answer = EndTransactionRequest(
            producer_group=message.properties.get(properties.PRODUCER_GROUP, self._producer.group),
            half_queue_offset=header.half_queue_offset,
            half_physical_offset=header.half_physical_offset,
            commit_or_rollback=_TYPES[outcome],
            from_check=True,
            message_id=header.message_id,
            transaction_id=header.transaction_id,
            topic=header.topic,
        )
        try:
            connection.request_oneway(self._link.command(RequestCode.END_TRANSACTION, answer))
        except RemotingError as error:
            log.warning("could not answer the check of transaction %s: %s", header.transaction_id, error)


class _NoOutcome(ClientError):
    """A branch or a check returned an invalid outcome."""


async def _outcome_of(outcome: Awaitable[Outcome] | Outcome) -> Outcome:
    value = await outcome if inspect.isawaitable(outcome) else outcome
    if value not in (True, False, None):
        raise _NoOutcome(
            f"invalid transaction outcome {value!r}: must be True, False or None; the transaction stays open"
        )
    return value
