"""POP consumption of one broker: messages in flight, held requests, and their handlers.

The handlers are imported with the first POP request, or if messages are in flight from an earlier run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from orbitlog.broker.pop.ordered_pops import OrderedPops
from orbitlog.broker.pop.popped_queues import Expired, Flight, PopKey, PoppedQueues
from orbitlog.broker.pop.request_modes import RequestModes
from orbitlog.broker.pop.revive_reader import ReviveReader
from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.runtime.lazy_handlers import LazyHandlers
from orbitlog.broker.sending.message_writer import MessageWriter
from orbitlog.broker.tables.config_directory import ConfigDirectory
from orbitlog.formats.tables.group_config import MESSAGE_REQUEST_MODE
from orbitlog.formats.tables.offset_tables import CONSUMER_ORDER_INFO
from orbitlog.formats.tables.pop_progress import POP_PROGRESS
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Connection, Handler
from orbitlog.store.dispatch.arrival import Arrival
from orbitlog.wire.codes import RequestCode as Code

if TYPE_CHECKING:
    from orbitlog.broker.pop.handle_pop import PopHandlers
    from orbitlog.broker.pop.revive_log import ReviveLog

log = logging.getLogger(__name__)

POP_CODES = (
    *(Code.POP_MESSAGE, Code.PEEK_MESSAGE, Code.NOTIFICATION, Code.POLLING_INFO, Code.ACK_MESSAGE),
    *(Code.BATCH_ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME, Code.QUERY_ASSIGNMENT, Code.SET_MESSAGE_REQUEST_MODE),
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
)


def _no_timer(now_ms: int) -> int:
    """Stand in for a timer without messages to deliver."""
    return now_ms


class PopConsumption:
    """POP of one broker."""

    def __init__(
        self,
        state: BrokerState,
        writer: MessageWriter,
        directory: ConfigDirectory,
        client: RemotingClient,
        timer_settled_to_ms: Callable[[int], int] = _no_timer,
    ) -> None:
        self._state = state
        self._writer = writer
        self._client = client
        self._is_in_use = False
        self.popped = PoppedQueues(state.offsets, directory.load(POP_PROGRESS))
        self.ordered = OrderedPops(state.offsets, directory.load(CONSUMER_ORDER_INFO))
        self.revives = ReviveReader(state, self._revive, timer_settled_to_ms)
        # Receipts of pops until then may belong to checkpoints: of an earlier run, or handed over by this one.
        self._logged_to_ms = state.now_ms()
        self.modes = RequestModes(state.events.save_soon, directory.load(MESSAGE_REQUEST_MODE))
        self.table: Mapping[int, Handler] = LazyHandlers(POP_CODES, self._handlers).table

    @cached_property
    def revive_log(self) -> ReviveLog:
        """The log of checkpoints for the next broker; imported when the first messages in flight are handed over."""
        from orbitlog.broker.pop.revive_log import ReviveLog

        return ReviveLog(self._state, self._writer)

    @cached_property
    def _pops(self) -> PopHandlers:
        from orbitlog.broker.pop.handle_pop import PopHandlers
        from orbitlog.broker.pop.pop_service import PopService

        self._is_in_use = True
        return PopHandlers(self._state, PopService(self._state, self._writer, self.popped, self.ordered))

    def _handlers(self) -> Mapping[int, Handler]:
        from orbitlog.broker.pop.earlier_pops import EarlierPops
        from orbitlog.broker.pop.handle_assignment import AssignmentHandlers
        from orbitlog.broker.pop.handle_pop_acks import PopAckHandlers

        earlier = EarlierPops(self._state, self.revive_log, self.revives, lambda: self._logged_to_ms)
        acks = PopAckHandlers(self._state, self._pops.service, self._pops.held.wake, earlier)
        assignments = AssignmentHandlers(self._state, self.modes, self._client)
        return {**self._pops.table, **acks.table, **assignments.table}

    @property
    def held_count(self) -> int:
        """Requests that wait for a message."""
        return len(self._pops.held) if self._is_in_use else 0

    @property
    def are_held(self) -> bool:
        """Return whether a request waits for a message."""
        return self._is_in_use and len(self._pops.held) > 0

    def wake(self, arrivals: Iterable[Arrival]) -> None:
        """Answer the requests that new messages match."""
        if self.are_held:
            self._pops.held.wake(dict.fromkeys(arrival.topic for arrival in arrivals))

    def tick(self, now_ms: int) -> None:
        """Requeue messages whose invisibility timeout has passed, and answer requests whose polling timeout has."""
        if self._is_in_use or self.popped.may_expire:
            self._pops.tick(now_ms)
        self.revives.tick(now_ms)

    def _revive(self, expired: Expired, counts: bool) -> bool:
        return self._pops.service.revive(expired, counts=counts)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget deliveries of deleted topics: in a topic re-created later the same offsets are other messages."""
        self.popped.forget_topics(topics)
        self.ordered.forget_topics(topics)

    def hand_over(self) -> None:
        """Append checkpoints of the messages in flight, from which the next broker continues."""
        count = self._hand_over(only_with_gap=False)
        if count:
            log.info("%d unacknowledged POP messages handed over in %s", count, self.revive_log.topic)

    def hand_over_gaps(self) -> None:
        """Append checkpoints for queues with a message acknowledged after one in flight.

        Called before offsets are saved. If this process is killed, a Java broker knows only those offsets and the
        checkpoints: without them it would redeliver what was acknowledged after the first message in flight.
        """
        self._hand_over(only_with_gap=True)

    def _hand_over(self, *, only_with_gap: bool) -> int:
        if not self.popped.may_expire or not self.revive_log.is_usable:
            return 0
        count = self.popped.hand_over(self._append_flight, only_with_gap=only_with_gap)
        if count:
            self._logged_to_ms = self._state.now_ms()
        return count

    def _append_flight(self, key: PopKey, flight: Flight, queue_offsets: list[int]) -> bool:
        is_appended = self.revive_log.append_flight(key, flight, queue_offsets)
        if is_appended:
            self.revives.note_hand_over(key, flight.pop_timestamp_ms, queue_offsets)
        return is_appended

    def answer_all(self, connection: Connection | None = None) -> None:
        """Answer all held requests, or those of one connection."""
        if self._is_in_use:
            self._pops.held.answer_all(connection)

    def drop(self, connection: Connection) -> None:
        """Drop the held requests of a closed connection."""
        if self._is_in_use:
            self._pops.held.drop(connection)
