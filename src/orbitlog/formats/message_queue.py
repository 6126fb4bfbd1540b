"""Message queues: the address of one queue of a topic at one broker. Mirrors Java `MessageQueue`."""

from __future__ import annotations

from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic at one broker. Sorted by topic, broker name and queue id, as all Java clients sort.

    Example:
        queue = orbitlog.MessageQueue("Orders", "broker-a", 0)
        print(queue.topic, queue.broker_name, queue.queue_id)
    """

    topic: str
    broker_name: str
    queue_id: int
