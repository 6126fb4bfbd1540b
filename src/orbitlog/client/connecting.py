"""`orbitlog.connect`: one call for both worlds, `async with` and plain `with`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from orbitlog.client.addresses import parse_addresses
from orbitlog.client.consuming import Consumer, Delivery
from orbitlog.client.rocketmq import PRODUCER_GROUP, RocketMQ
from orbitlog.client.signature import Credentials

P = ParamSpec("P")
R = TypeVar("R")

_STOP_SECONDS = 10.0


class Connecting:
    """Not connected yet: enter it with `async with` for the asynchronous client, with `with` for its twin."""

    def __init__(self, name_servers: tuple[str, ...], producer_group: str, credentials: Credentials | None) -> None:
        self._name_servers = name_servers
        self._producer_group = producer_group
        self._credentials = credentials
        self._client: RocketMQ | None = None
        self._twin: BlockingRocketMQ | None = None

    def _open(self) -> RocketMQ:
        return RocketMQ(self._name_servers, producer_group=self._producer_group, credentials=self._credentials)

    async def __aenter__(self) -> RocketMQ:
        self._client = self._open()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    def __enter__(self) -> BlockingRocketMQ:
        self._twin = BlockingRocketMQ(self._open)
        return self._twin

    def __exit__(self, *_: object) -> None:
        if self._twin is not None:
            self._twin.close()


def connect(
    address: str, *, producer_group: str = PRODUCER_GROUP, credentials: Credentials | None = None
) -> Connecting:
    """Connect to the cluster whose name servers are at `address`: `rocketmq://127.0.0.1:9876`."""
    return Connecting(parse_addresses(address), producer_group, credentials)


class _LoopThread:
    """An event loop in a thread of its own, for callers that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orbitlog client", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # does nothing to one that is done

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


def _blocking(
    method: Callable[Concatenate[RocketMQ, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingRocketMQ, P], R]:
    @wraps(method)
    def call(twin: BlockingRocketMQ, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return twin._thread.run(method(twin._client, *args, **kwargs))

    return call


class BlockingRocketMQ:
    """The same client for code without an event loop: the same names, each call waits for its result."""

    send = _blocking(RocketMQ.send)
    send_batch = _blocking(RocketMQ.send_batch)
    send_oneway = _blocking(RocketMQ.send_oneway)
    send_in_transaction = _blocking(RocketMQ.send_in_transaction)
    request = _blocking(RocketMQ.request)

    def __init__(self, make: Callable[[], RocketMQ]) -> None:
        self._thread = _LoopThread()
        self._client = self._thread.run(_made(make))

    @wraps(RocketMQ.consume)
    def consume(self, *topics: str, **options: Any) -> BlockingConsumer:
        return BlockingConsumer(self._thread, self._thread.run(self._client.consume(*topics, **options)))

    def close(self) -> None:
        self._thread.run(self._client.close())
        self._thread.stop()


async def _made(make: Callable[[], RocketMQ]) -> RocketMQ:
    return make()


class BlockingConsumer:
    """A consumer to iterate over: a message counts as done when the next one is asked for."""

    def __init__(self, thread: _LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    def __iter__(self) -> Iterator[BlockingDelivery]:
        while (delivery := self.next()) is not None:
            yield delivery
            delivery.ack()

    def next(self, seconds: float | None = None) -> BlockingDelivery | None:
        """Wait for the next message; None when the time is up or the consumer is closed. Needs its `ack`."""
        delivery = self._thread.run(self._consumer.next(seconds))
        return None if delivery is None else BlockingDelivery(self._thread, delivery)

    def commit(self) -> None:
        self._thread.run(self._consumer.commit())

    def close(self) -> None:
        self._thread.run(self._consumer.close())

    def __enter__(self) -> BlockingConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingDelivery:
    """A message; everything that a `Delivery` has, and `ack` and `retry` that wait."""

    def __init__(self, thread: _LoopThread, delivery: Delivery) -> None:
        self._thread = thread
        self._delivery = delivery

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    def ack(self) -> None:
        self._thread.run(self._delivery.ack())

    def retry(self, after: float | None = None) -> None:
        self._thread.run(self._delivery.retry(after))
