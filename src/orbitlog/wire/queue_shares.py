"""How the members of a group share the queues of a topic.

Every member computes the shares of all by itself, so each must come to the same result from the same two lists, in
whatever language it is written. Mirrors Java `AllocateMessageQueueAveragely`,
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
    """Neighbouring queues to one member; the first members get one more where it does not come out even."""
    place = _place(client_id, client_ids)
    if place is None:
        return []
    share, rest = divmod(len(queues), len(client_ids))
    start = place * share + min(place, rest)
    return list(queues[start : start + share + (place < rest)])


def allocate_circle(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> list[MessageQueue]:
    """Queues dealt out one by one, round and round."""
    place = _place(client_id, client_ids)
    return [] if place is None else list(queues[place :: len(client_ids)])


def allocate_consistent_hash(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Queues to the member next on a ring: few change hands when one joins or leaves."""
    if _place(client_id, client_ids) is None:
        return []
    ring = sorted((_ring_hash(f"{each}-{node}"), each) for each in client_ids for node in range(_VIRTUAL_NODES))
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


def _place(client_id: str, client_ids: Sequence[str]) -> int | None:
    """A member that the broker does not list yet takes nothing."""
    return client_ids.index(client_id) if client_id in client_ids else None


def _ring_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")
