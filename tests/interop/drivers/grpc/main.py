"""What the gRPC client for Python sees through Apache's proxy: runs all of it, prints it as one JSON object.

python main.py ENDPOINT MARK, with nothing but the client on its path. Topics and groups end with the mark.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

SECONDS_MAX = 60
SETTLE_SECONDS = 4  # a client is known to the proxy a moment after it started
INVISIBLE_SECONDS = 10
ENDPOINT, MARK = sys.argv[1:3]


def configuration() -> Any:
    return ClientConfiguration(ENDPOINT, Credentials())


def message(topic: str, body: str, **fields: object) -> Any:
    made = Message()
    made.topic, made.body = f"{topic}_{MARK}", body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def simple(group: str, topic: str) -> Any:
    consumer = SimpleConsumer(configuration(), f"{group}_{MARK}", {f"{topic}_{MARK}": FilterExpression()})
    consumer.startup()
    time.sleep(SETTLE_SECONDS)
    return consumer


def received(consumer: Any, count: int, take: Callable[[Any, int], None]) -> list[str]:
    """Receive until N messages came; `take` settles each."""
    found: list[str] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < count and time.monotonic() < deadline:
        for one in consumer.receive(8, INVISIBLE_SECONDS) or []:
            take(one, len(found))
            found.append(f"{one.body.decode()} {one.delivery_attempt}")
    return found


def plain(producer: Any) -> list[str]:
    consumer = simple("plain", "Plain")
    for number in range(5):
        producer.send(message("Plain", f"m{number}"))
    return sorted(received(consumer, 5, lambda one, _: consumer.ack(one)))


def again(producer: Any) -> list[str]:
    """The first time it is to come back soon, the second time it is done with."""
    consumer = simple("again", "Again")
    producer.send(message("Again", "again"))

    def take(one: Any, number: int) -> None:
        consumer.ack(one) if number else consumer.change_invisible_duration(one, INVISIBLE_SECONDS // 3)

    return received(consumer, 2, take)


def later(producer: Any) -> list[str]:
    consumer = simple("later", "Later")
    due = int(time.time()) + 3
    producer.send(message("Later", "later", delivery_timestamp=due))
    found = received(consumer, 1, lambda one, _: consumer.ack(one))
    return [*found, "on time" if time.time() >= due - 1 else "early"]


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.found: list[str] = []

    def consume(self, one: Any) -> Any:
        self.found.append(one.body.decode())
        return ConsumeResult.SUCCESS


def in_order(producer: Any) -> list[str]:
    listener = Listener()
    topic = f"InOrder_{MARK}"
    consumer = PushConsumer(configuration(), f"inorder_{MARK}", listener, {topic: FilterExpression()})
    consumer.startup()
    time.sleep(SETTLE_SECONDS)
    for number in range(10):
        producer.send(message("InOrder", f"m{number}", message_group="one"))
    deadline = time.monotonic() + SECONDS_MAX
    while len(listener.found) < 10 and time.monotonic() < deadline:
        time.sleep(0.1)
    return listener.found


class Checker(TransactionChecker):  # type: ignore[misc]
    def check(self, _: Any) -> Any:
        return TransactionResolution.COMMIT


def transactions(_: Any) -> list[str]:
    producer = Producer(configuration(), (f"Decided_{MARK}",), checker=Checker())
    producer.startup()
    consumer = simple("decided", "Decided")
    for word in ("commit", "rollback", "asked"):
        transaction = producer.begin_transaction()
        producer.send(message("Decided", word), transaction)
        if word != "asked":
            getattr(transaction, word)()
    return sorted(received(consumer, 2, lambda one, _: consumer.ack(one)))


def main() -> None:
    topics = tuple(f"{name}_{MARK}" for name in ("Plain", "Again", "Later", "InOrder"))
    producer = Producer(configuration(), topics)
    producer.startup()
    told = {work.__name__: work(producer) for work in (plain, again, later, in_order, transactions)}
    print(json.dumps(told), flush=True)
    os._exit(0)  # its threads end when they like


main()
