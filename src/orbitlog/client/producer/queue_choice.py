"""Queue selection: round robin, avoiding brokers that failed or were slow for a while.

The caller passes the time. Mirrors Java `MQFaultStrategy` and `LatencyFaultToleranceImpl` of 5.x; unlike there
it is always enabled, since a broker that has just failed is the worst choice for the next message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from orbitlog.formats.message_queue import MessageQueue

# Latency thresholds of a send, and for how long its broker is avoided: none below the first threshold.
_LATENCY_MS = (550, 1_800, 3_000, 5_000, 15_000)
_AVOID_MS = (0, 2_000, 5_000, 6_000, 10_000, 30_000)
FAILURE_MS = 10_000


@dataclass
class QueueChoice:
    """Round-robin counters by topic, and the brokers to avoid."""

    _turns: dict[str, int] = field(default_factory=dict)
    _avoid_until_ms: dict[str, int] = field(default_factory=dict)

    def choose(self, queues: Sequence[MessageQueue], now_ms: int, *, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue of a broker that is not avoided; if all are, the one whose avoidance ends first."""
        topic = queues[0].topic
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        if failed_broker is None and not self._avoid_until_ms:
            return queues[turn % len(queues)]
        in_turn = [queues[(turn + step) % len(queues)] for step in range(len(queues))]
        for queue in in_turn:
            if queue.broker_name != failed_broker and self.is_good(queue.broker_name, now_ms):
                return queue
        others = [queue for queue in in_turn if queue.broker_name != failed_broker] or in_turn
        return min(others, key=lambda queue: self._avoid_until_ms.get(queue.broker_name, 0))

    def return_turn(self, topic: str) -> None:
        """Undo the last `choose` of a topic."""
        self._turns[topic] -= 1

    @property
    def is_avoiding(self) -> bool:
        """Return whether any broker is avoided."""
        return bool(self._avoid_until_ms)

    def is_good(self, broker_name: str, now_ms: int) -> bool:
        return self._avoid_until_ms.get(broker_name, 0) <= now_ms

    def sent(self, broker_name: str, latency_ms: int, now_ms: int) -> None:
        """Record a response after `latency_ms`."""
        avoid_ms = _AVOID_MS[bisect_right(_LATENCY_MS, latency_ms)]
        if avoid_ms:
            self._avoid_until_ms[broker_name] = now_ms + avoid_ms
        else:
            self._avoid_until_ms.pop(broker_name, None)

    def failed(self, broker_name: str, now_ms: int) -> None:
        """Record a timeout, or an error code that means that the broker accepts no messages."""
        self._avoid_until_ms[broker_name] = now_ms + FAILURE_MS

    def moved(self, broker_name: str) -> None:
        """Avoid a broker no longer: another server is its master now."""
        self._avoid_until_ms.pop(broker_name, None)
