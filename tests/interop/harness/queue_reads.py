"""Reads of whole topics by a pull consumer, without a group's offsets."""

from __future__ import annotations

from collections.abc import Iterator

from tests.interop.harness.clients import Client
from tests.interop.harness.processes import JsonObject

# Exists at every broker, also where groups are not created automatically.
_GROUP = "TOOLS_CONSUMER"


def messages_of(client: Client, topic: str) -> list[JsonObject]:
    """Pull every message of a topic, queue by queue."""
    found: list[JsonObject] = []
    consumer = client.pull_consumer(_GROUP)
    try:
        for place in _queues(client, consumer, topic):
            bounds = client.call("queueBounds", **place)
            position = max(bounds["min"], 0)  # Java answers -1 for a batch queue without a message
            while position < bounds["max"]:
                pulled = client.call("pull", **place, position=position)
                found += pulled["messages"]
                assert pulled["next"] > position, f"{place} ends at {position}: {pulled['status']}"
                position = pulled["next"]
    finally:
        client.end(consumer)
    return found


def bounds_of(client: Client, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset of each queue and the one after its last."""
    consumer = client.pull_consumer(_GROUP)
    try:
        found = {}
        for place in _queues(client, consumer, topic):
            bounds = client.call("queueBounds", **place)
            found[int(str(place["queue"]))] = bounds["min"], bounds["max"]
        return found
    finally:
        client.end(consumer)


def _queues(client: Client, consumer: str, topic: str) -> Iterator[dict[str, object]]:
    for queue in client.call("pullQueues", name=consumer, topic=topic)["queues"]:
        broker, _, queue_id = queue.rpartition(":")
        yield {"name": consumer, "topic": topic, "broker": broker, "queue": queue_id}
