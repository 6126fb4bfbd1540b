"""Everything of POP in one broker, put together: what is out, who waits, and the handlers over both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orbitlog.broker.broker_state import BrokerState
from orbitlog.broker.config_directory import ConfigDirectory
from orbitlog.broker.handle_assignment import AssignmentHandlers
from orbitlog.broker.handle_pop import PopHandlers
from orbitlog.broker.handle_pop_acks import PopAckHandlers
from orbitlog.broker.message_writer import MessageWriter
from orbitlog.broker.ordered_pops import OrderedPops
from orbitlog.broker.popped_queues import PoppedQueues
from orbitlog.broker.popping import Popping
from orbitlog.broker.request_modes import RequestModes
from orbitlog.formats.group_config import MESSAGE_REQUEST_MODE
from orbitlog.formats.offset_tables import CONSUMER_ORDER_INFO
from orbitlog.formats.pop_progress import POP_PROGRESS
from orbitlog.remoting.client import RemotingClient
from orbitlog.remoting.connection import Connection, Handler
from orbitlog.store.dispatcher import Arrival


class PopConsumption:
    """One broker's POP."""

    def __init__(
        self, state: BrokerState, writer: MessageWriter, directory: ConfigDirectory, client: RemotingClient
    ) -> None:
        self.popped = PoppedQueues(state.offsets, directory.load(POP_PROGRESS))
        self.ordered = OrderedPops(state.offsets, directory.load(CONSUMER_ORDER_INFO))
        self.modes = RequestModes(directory.load(MESSAGE_REQUEST_MODE))
        popping = Popping(state, writer, self.popped, self.ordered)
        self._pops = PopHandlers(state, popping)
        self._acks = PopAckHandlers(state, popping, self._pops.held.wake)
        self._assignments = AssignmentHandlers(state, self.modes, client)

    @property
    def table(self) -> Mapping[int, Handler]:
        return {**self._pops.table, **self._acks.table, **self._assignments.table}

    @property
    def are_held(self) -> bool:
        """Tell whether anybody waits for a message."""
        return len(self._pops.held) > 0

    def wake(self, arrivals: Iterable[Arrival]) -> None:
        """Answer those that new messages are for."""
        if len(self._pops.held):
            self._pops.held.wake(dict.fromkeys(arrival.topic for arrival in arrivals))

    def tick(self, now_ms: int) -> None:
        """Put back what was not acknowledged in time, and answer those who have waited long enough."""
        self._pops.tick(now_ms)

    def answer_all(self, connection: Connection | None = None) -> None:
        """Answer everybody who waits, or everybody on one connection."""
        self._pops.held.answer_all(connection)

    def drop(self, connection: Connection) -> None:
        """Forget what a connection that is gone waited for."""
        self._pops.held.drop(connection)
