"""Orbitlog: Apache RocketMQ's message system in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitlog import errors
    from orbitlog.access.credentials import Credentials
    from orbitlog.client.admin.administration import Administration, QueueProgress
    from orbitlog.client.blocking import BlockingConsumer, BlockingDelivery, BlockingReader, BlockingRocketMQ
    from orbitlog.client.connection.client_tls import Tls
    from orbitlog.client.connection.connect import connect
    from orbitlog.client.consumer.delivery import Delivery
    from orbitlog.client.consumer.group_consumer import Consumer
    from orbitlog.client.consumer.group_link import StartFrom
    from orbitlog.client.consumer.received import Received
    from orbitlog.client.consumer.topic_reader import Reader
    from orbitlog.client.producer.receipts import Receipt, SendStatus
    from orbitlog.client.producer.request_reply import Reply
    from orbitlog.client.rocketmq import RocketMQ
    from orbitlog.errors import OrbitlogError
    from orbitlog.formats.message_queue import MessageQueue

__version__ = "0.1.0"

__all__ = ["Administration", "BlockingConsumer", "BlockingDelivery", "BlockingReader", "BlockingRocketMQ", "Consumer"]
__all__ += ["Credentials", "Delivery", "MessageQueue", "OrbitlogError", "QueueProgress", "Reader", "Receipt"]
__all__ += ["Received", "Reply", "RocketMQ", "SendStatus", "StartFrom", "Tls", "connect", "errors"]


def __getattr__(name: str) -> Any:
    # Imported on first use: commands without a client must start without loading it.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orbitlog.client.exports import load

    return load(name)
