"""Which transactions have ended: remembered for who says it twice, and written down for whoever opens the store."""

from __future__ import annotations

import asyncio
import logging

from orbitlog.broker.transactions.half_messages import ENDED_TOGETHER_MAX, HalfMessages

log = logging.getLogger(__name__)

ENDED_MAX = 100_000


class TransactionEnds:
    """Ends of half messages, by the queue offset under which each was sent first."""

    def __init__(self, halves: HalfMessages) -> None:
        self._halves = halves
        # As far back as is remembered: a producer may answer a question and end it by itself, too.
        self._ended: dict[int, None] = {}
        self._ending: list[int] = []

    def __contains__(self, origin: int) -> bool:
        return origin in self._ended

    def note(self, origin: int) -> None:
        self._ended[origin] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    def write_soon(self, half_queue_offset: int) -> None:
        """Let one op message end all that come in the same turn of the loop and want no answer."""
        if not self._ending:
            asyncio.get_running_loop().call_soon(self.write)
        self._ending.append(half_queue_offset)

    def write(self) -> None:
        """Write down what has ended in this turn."""
        ending, self._ending = self._ending, []
        for first in range(0, len(ending), ENDED_TOGETHER_MAX):
            ended = self._halves.end(*ending[first : first + ENDED_TOGETHER_MAX])
            if not ended.is_stored:
                # Nothing is lost: their producer will be asked, and says the same again.
                log.warning("%d transactions could not be written down as ended: %s", len(ending) - first, ended.status)
                return
