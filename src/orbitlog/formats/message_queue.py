"""Message queues: the address of one queue of a topic at one broker. Mirrors Java `MessageQueue`."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic at one broker. Sorted by topic, broker name and queue id, as all Java clients sort.

    Example:
        >>> MessageQueue("Orders", "broker-a", 0) < MessageQueue("Orders", "broker-a", 1)
        True
    """

    topic: str
    broker_name: str
    queue_id: int
