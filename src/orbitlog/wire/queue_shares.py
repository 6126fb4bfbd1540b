"""Queue allocation: how the members of a consumer group share the queues of a topic.

Every member computes its share itself. So clients of all languages must get the same result from the same two lists.
Mirrors Java `AllocateMessageQueueAveragely`,
`AllocateMessageQueueAveragelyByCircle` and `AllocateMessageQueueConsistentHash`.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence

from orbitlog.formats.message_queue import MessageQueue

_VIRTUAL_NODES = 10


Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def allocate_average(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Return consecutive queues; the first members get one more if the queues do not divide evenly."""
    index = _index(client_id, client_ids)
    if index is None:
        return []
    share, rest = divmod(len(queues), len(client_ids))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def allocate_circle(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Return every n-th queue: queues are assigned round-robin."""
    index = _index(client_id, client_ids)
    return [] if index is None else list(queues[index :: len(client_ids)])


def allocate_consistent_hash(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Return queues by consistent hashing: few of them move when a member joins or leaves."""
    if _index(client_id, client_ids) is None:
        return []
    ring = sorted((_ring_hash(f"{member}-{node}"), member) for member in client_ids for node in range(_VIRTUAL_NODES))
    hashes = [number for number, _ in ring]

    def owner(queue: MessageQueue) -> str:
        key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return ring[bisect_left(hashes, _ring_hash(key)) % len(ring)][1]

    return [queue for queue in queues if owner(queue) == client_id]


STRATEGIES: dict[str, Allocate] = {
    "average": allocate_average,
    "circle": allocate_circle,
    "consistent-hash": allocate_consistent_hash,
}


def _index(client_id: str, client_ids: Sequence[str]) -> int | None:
    """Return the index of a member; None if the broker does not list it yet, so that it gets no queue."""
    return client_ids.index(client_id) if client_id in client_ids else None


def _ring_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
