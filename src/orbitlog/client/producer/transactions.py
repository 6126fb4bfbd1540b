"""Messages that count only if something else happened: half messages, their ends, and the broker's questions.

Mirrors Java `DefaultMQProducerImpl.sendMessageInTransaction` and `checkTransactionState`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable

from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Routes
from orbitlog.client.consumer.received import Received, SpacedMessage
from orbitlog.client.producer.outgoing import Outgoing
from orbitlog.client.producer.producer_sends import Sending
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
"""True commits, False rolls back, None leaves it open: the broker will ask."""
Branch = Callable[[Receipt], Awaitable[Outcome] | Outcome]
Check = Callable[[Received], Awaitable[Outcome] | Outcome]

_TYPES = {True: TransactionType.COMMIT, False: TransactionType.ROLLBACK, None: TransactionType.NONE}


class Transactional:
    """The transactions of one client."""

    def __init__(self, link: ClusterLink, routes: Routes, sending: Sending, namespace: str = "") -> None:
        self._link = link
        self._routes = routes
        self._sending = sending
        self._namespace = namespace
        self.check: Check | None = None

    async def send(self, message: Outgoing, branch: Branch, *, seconds: float) -> tuple[Receipt, Outcome]:
        """Send a half message, run the branch, and commit if it returns True. What it raises rolls back."""
        message.properties[properties.TRANSACTION_PREPARED] = "true"
        message.properties[properties.PRODUCER_GROUP] = self._sending.group
        receipt = await self._sending.send(message, seconds=seconds, transaction=TransactionType.PREPARED)
        outcome: Outcome = False
        try:
            outcome = await _settled(branch(receipt))
        except (asyncio.CancelledError, _NoOutcome):
            outcome = None  # how it ended is for `check` to say
            raise
        finally:
            await self._end(receipt, outcome)
        return receipt, outcome

    async def _end(self, receipt: Receipt, outcome: Outcome) -> None:
        """Tell the broker. It is not told twice: one that did not hear it asks, when it is back."""
        header = EndTransactionRequest(
            producer_group=self._sending.group,
            half_queue_offset=receipt.queue_offset,
            half_physical_offset=parse_offset_message_id(receipt.offset_message_id).physical_offset,
            commit_or_rollback=_TYPES[outcome],
            message_id=receipt.message_id,
            transaction_id=receipt.message_id,
            topic=receipt.queue.topic,
        )
        try:
            await self._link.tell(self._routes.address_of(receipt.queue), RequestCode.END_TRANSACTION, header)
        except OrbitlogError as error:
            log.warning("the end of transaction %s is not told; the broker will ask: %s", receipt.message_id, error)

    async def answer(self, connection: Connection, request: Command) -> None:
        """A broker asks how a transaction ended; where `check` fails it is not told, and asks again."""
        header = CheckTransactionRequest.from_ext_fields(request.ext_fields)
        if self.check is None:
            log.warning(
                "a broker asks about transaction %s, and nobody can say: give `check_transactions` a function that can",
                header.transaction_id,
            )
            return
        message = SpacedMessage(decode_message(request.body), header.broker_name or "", self._namespace)
        outcome = await _settled(self.check(message))
        answer = EndTransactionRequest(
            producer_group=message.properties.get(properties.PRODUCER_GROUP, self._sending.group),
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
            log.warning("the end of transaction %s is not told: %s", header.transaction_id, error)


class _NoOutcome(ClientError):
    """A branch or a check returned something else than how it ended."""


async def _settled(outcome: Awaitable[Outcome] | Outcome) -> Outcome:
    told = await outcome if inspect.isawaitable(outcome) else outcome
    if told not in (True, False, None):
        raise _NoOutcome(
            f"a transaction ends with True, False or None, not {told!r}; it stays open, and the broker will ask"
        )
    return told
