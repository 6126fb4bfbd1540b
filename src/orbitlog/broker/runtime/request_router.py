"""Request routing: the handler of every request code of a broker, and the clean-up after a client that leaves.

Mirrors the processor table of `BrokerController`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from orbitlog.broker.admin.handle_clients import ClientHandlers
from orbitlog.broker.pop.pop_consumption import PopConsumption
from orbitlog.broker.pulling.handle_offsets import OffsetHandlers
from orbitlog.broker.pulling.handle_pull import PullHandler
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.dispatch_scheduler import DispatchScheduler
from orbitlog.broker.runtime.lazy_handlers import LazyHandlers
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.broker.sending.handle_send import SendHandler
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.tables.topics import Topics
from orbitlog.broker.transactions.handle_transactions import TransactionHandler
from orbitlog.errors import StoreError
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.remoting.request_dispatch import Dispatch
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

log = logging.getLogger(__name__)

SEND_CODES = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
PULL_CODES = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
# Requests that many brokers never receive: their handlers are imported with the first of them.
RARE_CODES = (
    *(RequestCode.RECALL_MESSAGE, RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
    *(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID),
)
# Requests that append only: their responses do not depend on dispatch, so they do not hurry a delayed step.
_APPEND_CODES = frozenset((*SEND_CODES, RequestCode.END_TRANSACTION))


@dataclass(frozen=True, slots=True)
class HandlerSet:
    """The handlers of one broker that are built with it."""

    sends: SendHandler
    transactions: TransactionHandler
    pulls: PullHandler
    clients: ClientHandlers
    pops: PopConsumption

    def table(self, state: BrokerState, writer: MessageWriter, flushes: FlushQueue | None) -> dict[int, Handler]:
        """Return the handlers of clients' requests by code, those of rare codes as `LazyHandlers`."""
        return {
            **dict.fromkeys(SEND_CODES, self.sends),
            **dict.fromkeys(PULL_CODES, self.pulls),
            RequestCode.END_TRANSACTION: self.transactions,
            **OffsetHandlers(state).table,
            **LazyHandlers(RARE_CODES, lambda: rare_handlers(state, writer, flushes)).table,
            **self.clients.table,
            **self.pops.table,
        }


def rare_handlers(state: BrokerState, writer: MessageWriter, flushes: FlushQueue | None) -> dict[int, Handler]:
    """Import and return the handlers of `RARE_CODES`."""
    from orbitlog.broker.delayed.handle_recall import RecallHandler
    from orbitlog.broker.pulling.handle_lookup import LookupHandlers
    from orbitlog.broker.sending.handle_reply import ReplyHandler
    from orbitlog.broker.sending.handle_send_back import SendBackHandler

    reply = ReplyHandler(state, writer)
    return {
        RequestCode.RECALL_MESSAGE: RecallHandler(state, writer, flushes),
        RequestCode.SEND_REPLY_MESSAGE: reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: reply,
        RequestCode.CONSUMER_SEND_MSG_BACK: SendBackHandler(state, writer, flushes),
        **LookupHandlers(state).table,
    }


class RequestRouter:
    """Passes each request to its handler. Used in the thread of the event loop alone."""

    def __init__(
        self,
        topics: Topics,
        scheduler: DispatchScheduler,
        handlers: HandlerSet,
        table: Mapping[int, Handler],
        publish_topics: Callable[[], Awaitable[None]],
    ) -> None:
        self._topics = topics
        self._scheduler = scheduler
        self._handlers = handlers
        self._dispatch = Dispatch(table)
        self._publish_topics = publish_topics
        self._seen: set[Connection] = set()

    def serve(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        """Return the handler's answer; after a change of topics, an awaitable that waits until it is published."""
        if connection not in self._seen:
            self._seen.add(connection)
            connection.on_close(self._closed)
            connection.on_end_of_requests(self._ended)
        if self._scheduler.delayed_step is not None and request.code not in _APPEND_CODES:
            self._scheduler.run_now(self._scheduler.delayed_step)
        topics = self._topics
        version = topics.data_version
        answer = self._dispatch(connection, request)
        if version is not topics.data_version and isinstance(answer, Command | bytes):
            return self._answer_published(answer)
        return answer

    async def _answer_published(self, answer: Command | bytes) -> Answer:
        """Return the answer once a new topic is saved and known to name servers: the client asks those next."""
        try:
            await self._publish_topics()
        except StoreError as error:
            log.error("could not save the topic table after a topic was created: %s", error)
        return answer

    def _ended(self, connection: Connection) -> None:
        """Answer the waiting requests of a client that sends no more, so that other consumers get the messages."""
        self._handlers.pulls.answer_owner(connection)
        self._handlers.pops.answer_all(connection)
        self._handlers.clients.drop(connection)

    def _closed(self, connection: Connection) -> None:
        self._seen.discard(connection)
        self._handlers.pulls.drop(connection)
        self._handlers.pops.drop(connection)
        self._handlers.clients.drop(connection)
