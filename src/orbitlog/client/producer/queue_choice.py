"""Which queue a message goes to: round robin, brokers that failed or were slow left out for a while.

Time is the caller's. Mirrors Java `MQFaultStrategy` and `LatencyFaultToleranceImpl` of 5.x; unlike there it is always
on, since a broker that just failed is the worst choice for the next message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from orbitlog.formats.message_queue import MessageQueue

# A send that took this long keeps its broker out of the round for so long.
_LATENCY_MS = (550, 1_800, 3_000, 5_000, 15_000)
_AVOID_MS = (0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_MS = 10_000


@dataclass
class QueueChoice:
    """Turns of the topics of one producer, and the brokers it avoids."""

    _turns: dict[str, int] = field(default_factory=dict)
    _avoid_until_ms: dict[str, int] = field(default_factory=dict)

    def choose(self, queues: Sequence[MessageQueue], now_ms: int, *, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue in turn; of a broker that is not avoided, if there is any."""
        topic = queues[0].topic
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        if failed_broker is None and not self._avoid_until_ms:
            return queues[turn % len(queues)]
        inturn = [queues[(turn + step) % len(queues)] for step in range(len(queues))]
        for queue in inturn:
            if queue.broker_name != failed_broker and self.is_good(queue.broker_name, now_ms):
                return queue
        others = [queue for queue in inturn if queue.broker_name != failed_broker] or inturn
        return min(others, key=lambda queue: self._avoid_until_ms.get(queue.broker_name, 0))

    def give_back(self, topic: str) -> None:
        """Let the turn that was just taken be the next one."""
        self._turns[topic] -= 1

    @property
    def is_avoiding(self) -> bool:
        """Tell whether any broker is left out."""
        return bool(self._avoid_until_ms)

    def is_good(self, broker_name: str, now_ms: int) -> bool:
        return self._avoid_until_ms.get(broker_name, 0) <= now_ms

    def sent(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """A broker answered after `latency_ms`."""
        avoid_ms = _AVOID_MS[bisect_right(_LATENCY_MS, latency_ms)]
        if avoid_ms:
            self._avoid_until_ms[broker_name] = now_ms + avoid_ms
        else:
            self._avoid_until_ms.pop(broker_name, None)

    def failed(self, broker_name: str, now_ms: int) -> None:
        """A broker did not answer, or said that it cannot take messages."""
        self._avoid_until_ms[broker_name] = now_ms + FAILURE_MS
