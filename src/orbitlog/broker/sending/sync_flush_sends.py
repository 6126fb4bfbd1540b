"""The short way of sends that wait for the disk: stored as all others are, and answered when they are there.

A run of sends has one entry among those who wait, and nothing but its answers is kept of it. The connection counts them
as unanswered meanwhile: it takes no more than it may, and a broker that stops answers them before it says good-bye.
"""

from __future__ import annotations

from collections import deque

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.fast_sends import QuickSends
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.broker.sending.send_answer import SendAnswers
from orbitlog.broker.sending.send_templates import RUN_MAX, Lanes
from orbitlog.broker.transactions.fast_transactions import QuickTransactions
from orbitlog.remoting.connection import Connection
from orbitlog.wire.frames import Frame

# A batch whose sender does not want to wait for the disk, as JSON writes it. (With single messages such a property is
# unusual enough to lead the long way.)
_NO_WAIT = b"WAIT\\u0001false"


class SyncedSends(QuickSends):
    """Sends that go the short way and are answered once the log is on the disk."""

    def __init__(
        self,
        state: BrokerState,
        answers: SendAnswers,
        transactions: QuickTransactions,
        added_raw: bytes,
        *,
        flushes: FlushQueue,
    ) -> None:
        super().__init__(state, answers, transactions, added_raw)
        self._flushes = flushes

    def __call__(self, connection: Connection, backlog: deque[Frame], outgoing: list[bytes]) -> None:
        """Take ordinary sends off the front of a connection's backlog, and store them; answers come later."""
        take, store = super().__call__, self._state.store
        is_full = True
        while is_full and backlog and not connection.is_congested:
            answers: list[bytes] = []
            take(connection, backlog, answers)
            is_full = len(answers) >= RUN_MAX
            if answers:
                self._flushes.wait_run(store.written_to, connection, answers)

    def _take_batch(self, lanes: Lanes, frame: Frame, outgoing: list[bytes]) -> bool:
        return _NO_WAIT not in frame[1] and super()._take_batch(lanes, frame, outgoing)
