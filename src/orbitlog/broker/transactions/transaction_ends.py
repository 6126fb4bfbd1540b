"""Ends of transactions: kept in memory to detect repeated ends, and stored as op messages.

Mirrors `TransactionalOpBatchService`.
"""

from __future__ import annotations

import asyncio
import logging

from orbitlog.broker.transactions.half_messages import ENDED_TOGETHER_MAX, HalfMessages

log = logging.getLogger(__name__)

ENDED_MAX = 100_000


class TransactionEnds:
    """Ends of half messages, by the queue offset of the first copy of each."""

    def __init__(self, halves: HalfMessages) -> None:
        self._halves = halves
        # The last 100,000: a producer may reply to a check and end the transaction by itself as well.
        self._ended: dict[int, None] = {}
        self._ending: list[int] = []

    def __contains__(self, origin: int) -> bool:
        return origin in self._ended

    def note(self, origin: int) -> None:
        self._ended[origin] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    def write_soon(self, half_queue_offset: int) -> None:
        """End a half message by the op message that is stored at the end of this turn of the loop.

        For ends without a response: one op message ends all half messages of the turn.
        """
        if not self._ending:
            asyncio.get_running_loop().call_soon(self.write)
        self._ending.append(half_queue_offset)

    def write(self) -> None:
        """Store the op messages of this turn."""
        ending, self._ending = self._ending, []
        for first in range(0, len(ending), ENDED_TOGETHER_MAX):
            ended = self._halves.end(*ending[first : first + ENDED_TOGETHER_MAX])
            if not ended.is_stored:
                # Nothing is lost: the transaction check asks their producers, which then end them.
                log.warning("could not store the end of %d transactions: %s", len(ending) - first, ended.status)
                return
