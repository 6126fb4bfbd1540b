"""Fields of valid requests, for peers that use none of the client's code."""

from __future__ import annotations

TOPIC = "TBW102"
SEND = {"a": "p", "b": TOPIC, "c": TOPIC, "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": "UNIQ_KEY\x01u\x02"}
"""SEND_MESSAGE_V2 (310)."""
HELD_PULL = {
    "consumerGroup": "g",
    "topic": TOPIC,
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "6",
    "commitOffset": "0",
    "suspendTimeoutMillis": "600000",
    "subscription": "*",
    "subVersion": "0",
}
"""PULL_MESSAGE (11) that waits for a message."""
