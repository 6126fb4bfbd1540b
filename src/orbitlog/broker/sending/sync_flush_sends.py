"""Fast path of sends with SYNC_FLUSH: appends at once, and holds the responses until the flush.

A run of sends is one entry of the flush queue, which keeps only its responses. The connection counts them as
unanswered meanwhile: it stops reading at its limit, and a broker that shuts down answers them before it closes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from orbitlog.broker.runtime.broker_state import BrokerState
from orbitlog.broker.sending.fast_sends import FastSends, SendParts
from orbitlog.broker.sending.flush_queue import FlushQueue
from orbitlog.broker.sending.send_templates import RUN_MAX, VerifiedSend
from orbitlog.broker.transactions.fast_transactions import FastTransactions
from orbitlog.remoting.connection import Connection
from orbitlog.wire.frames import Frame


class SyncFlushSends(FastSends):
    """Serves sends that repeat an earlier one; responds after the flush that covers them."""

    def __init__(
        self, state: BrokerState, parts: SendParts, transactions: FastTransactions, flushes: FlushQueue
    ) -> None:
        super().__init__(state, parts, transactions)
        self._store = state.store
        self._flushes = flushes

    def __call__(
        self,
        connection: Connection,
        backlog: deque[Frame],
        outgoing: list[bytes],
        opaques: list[bytes] | None = None,
        reads: Sequence[VerifiedSend] = (),
    ) -> None:
        """Take sends off the front of a connection's backlog and store them; `outgoing` stays as it is."""
        take, is_full = super().__call__, True
        while is_full and backlog and not connection.is_congested:
            frames: list[bytes] = []
            taken: list[bytes] = []
            take(connection, backlog, frames, taken, reads)
            reads = ()
            is_full = len(frames) >= RUN_MAX
            if frames:
                self._flushes.wait_run(self._store.written_to, connection, frames, taken)
