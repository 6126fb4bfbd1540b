"""Stores that pass between Orbitlog and Apache brokers: settings, and what consumers got."""

from __future__ import annotations

import time

from tests.interop.harness.clients import Client, Push
from tests.interop.harness.processes import JsonObject

LINES = {"4.9.7": "4.9", "5.5.0": "5.5"}
SMALL = {
    "mappedFileSizeCommitLog": 4 * 1024 * 1024,
    "mappedFileSizeConsumeQueue": 20 * 1000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}


def ids(messages: list[JsonObject]) -> set[str]:
    return {one.get("uniqueId") or one["msgId"] for one in messages}


def consumed(client: Client, topic: str, group: str, count: int) -> set[str]:
    """Let a consumer of the group take what is there; positions are committed when it is closed."""
    push: Push = client.push(topic, group)
    push.wait_for(count)
    time.sleep(1)
    found = ids(push.messages)
    push.close()
    time.sleep(0.5)  # a commit is not answered
    return found
