"""Public names of the package: `orbitlog.NAME` imports the module listed here on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

MODULE_OF = {
    "Administration": "orbitlog.client.admin.administration",
    "BlockingConsumer": "orbitlog.client.blocking",
    "BlockingDelivery": "orbitlog.client.blocking",
    "BlockingReader": "orbitlog.client.blocking",
    "BlockingRocketMQ": "orbitlog.client.blocking",
    "Consumer": "orbitlog.client.consumer.group_consumer",
    "Credentials": "orbitlog.access.credentials",
    "Delivery": "orbitlog.client.consumer.delivery",
    "MessageQueue": "orbitlog.formats.message_queue",
    "OrbitlogError": "orbitlog.errors",
    "QueueProgress": "orbitlog.client.admin.administration",
    "Reader": "orbitlog.client.consumer.topic_reader",
    "Receipt": "orbitlog.client.producer.receipts",
    "Received": "orbitlog.client.consumer.received",
    "Reply": "orbitlog.client.producer.request_reply",
    "RocketMQ": "orbitlog.client.rocketmq",
    "SendStatus": "orbitlog.client.producer.receipts",
    "StartFrom": "orbitlog.client.consumer.group_link",
    "Tls": "orbitlog.client.connection.client_tls",
    "connect": "orbitlog.client.connection.connect",
}


def load(name: str) -> Any:
    """Import and return a public name."""
    if name == "errors":
        return import_module("orbitlog.errors")
    return getattr(import_module(MODULE_OF[name]), name)
