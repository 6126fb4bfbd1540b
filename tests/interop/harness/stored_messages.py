"""Messages of a topic as an official client pulls them."""

from __future__ import annotations

from tests.interop.harness.clients import Client
from tests.interop.harness.processes import JsonObject


def stored(client: Client, topic: str, queues: int, count: int) -> list[JsonObject]:
    """All messages of a topic, pulled queue by queue; waits until there are N."""
    consumer = client.pull_consumer(client.group("readers"))
    found: list[JsonObject] = []

    def read() -> bool:
        found.clear()
        for queue_id in range(queues):
            position = 0
            while True:
                answer = client.call(
                    "pull", name=consumer, topic=topic, broker=client.system.broker_name, queue=queue_id,
                    position=position,
                )  # fmt: skip
                if answer["status"] != "FOUND":
                    break
                found.extend(answer["messages"])
                position = answer["next"]
        return len(found) >= count

    client.eventually(read, f"{count} messages of {topic} stored")
    return found
