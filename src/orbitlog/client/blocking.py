"""Blocking client: the methods of the asyncio client, for code without an event loop.

Nothing is implemented twice: the asyncio client runs in a background thread, and each method here passes its call to
that thread and waits for the result. Signatures are those of the asyncio client, by construction (`ParamSpec`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection.loop_thread import LoopThread
from orbitlog.client.consumer.delivery import Delivery
from orbitlog.client.consumer.group_consumer import WORK_SECONDS, Consumer
from orbitlog.client.consumer.received import Received
from orbitlog.client.consumer.topic_reader import Reader
from orbitlog.client.producer.fast_producer import SEND_SECONDS
from orbitlog.client.producer.receipts import Receipt
from orbitlog.client.producer.transactions import Branch, Check, Outcome
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientClosed
from orbitlog.formats.message_queue import MessageQueue

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")

# The consumer whose listener runs in this thread, if any: a listener that closes its own consumer must not wait for
# itself to return.
_current_listener: ContextVar[BlockingConsumer | None] = ContextVar("orbitlog_current_listener", default=None)


class _Twin(Generic[A]):
    """Blocking counterpart of an object that lives in a loop thread."""

    def __init__(self, thread: LoopThread, original: A) -> None:
        self._thread = thread
        self._original = original


class _ClosableTwin(_Twin[A]):
    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[_Twin[A], P], R]:
    """Return a method that runs a coroutine method in the loop thread."""

    @wraps(method)
    def call(twin: _Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return twin._thread.run(method(twin._original, *args, **kwargs))

    return call


def _blocking_plain(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[_Twin[A], P], R]:
    """Return a method that runs a plain method in the loop thread."""

    @wraps(method)
    def call(twin: _Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return twin._thread.call(lambda: method(twin._original, *args, **kwargs))

    return call


def _blocking_list(
    method: Callable[Concatenate[A, P], AsyncIterator[R]],
) -> Callable[Concatenate[_Twin[A], P], list[R]]:
    """Return a method that collects the results of an async generator method."""

    async def collected(results: AsyncIterator[R]) -> list[R]:
        return [result async for result in results]

    @wraps(method)
    def call(twin: _Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> list[R]:
        return twin._thread.run(collected(method(twin._original, *args, **kwargs)))

    return call


def _blocking_as(
    kind: Callable[[LoopThread, B], R], method: Callable[Concatenate[A, P], Awaitable[B]]
) -> Callable[Concatenate[_Twin[A], P], R]:
    """Return a method that wraps the result of an awaitable method in its blocking counterpart."""

    @wraps(method)
    def call(twin: _Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return kind(twin._thread, twin._thread.run(method(twin._original, *args, **kwargs)))

    return call


class BlockingAdministration(_Twin[Administration]):
    """Administration of a cluster, available as `mq.admin` of the blocking client. See `Administration`.

    Example:
        with orbitlog.connect(address) as mq:
            print(mq.admin.topics())
    """

    cluster = _blocking(Administration.cluster)
    brokers = _blocking(Administration.brokers)
    topics = _blocking(Administration.topics)
    topic_configs = _blocking(Administration.topic_configs)
    create_topic = _blocking(Administration.create_topic)
    delete_topic = _blocking(Administration.delete_topic)
    topic_offsets = _blocking(Administration.topic_offsets)
    groups = _blocking(Administration.groups)
    create_group = _blocking(Administration.create_group)
    delete_group = _blocking(Administration.delete_group)
    progress = _blocking(Administration.progress)
    reset_offsets = _blocking(Administration.reset_offsets)
    message = _blocking(Administration.message)
    find = _blocking_list(Administration.find)


class BlockingDelivery(Received):
    """A message delivered to a consumer group; settle it with `ack()` or `retry()`. See `Delivery`.

    Example:
        with orbitlog.connect(address) as mq, mq.consume("Orders", group="audit", start_from="first") as consumer:
            message = consumer.next(10)
            if message is not None:
                message.ack()
    """

    __slots__ = ("_delivery", "_thread")

    def __init__(self, thread: LoopThread, delivery: Delivery) -> None:
        super().__init__(delivery.stored, delivery.broker_name, delivery.local_attempts)
        self._thread = thread
        self._delivery = delivery

    @property
    def topic(self) -> str:
        """The topic it was sent to, without namespace, also for a retried message."""
        return self._delivery.topic

    @property
    def is_settled(self) -> bool:
        """Whether `ack` or `retry` was called."""
        return self._delivery.is_settled

    def ack(self) -> None:
        """Acknowledge the message: it is consumed, and its offset may be committed."""
        self._thread.run(self._delivery.ack())

    def retry(self, after: float | None = None) -> None:
        """Have the message redelivered after about `after` seconds."""
        self._thread.run(self._delivery.retry(after))


class BlockingConsumer(_ClosableTwin[Consumer]):
    """A member of a consumer group; iterate over it. Requesting the next message acknowledges the last. See `Consumer`.

    Example:
        with orbitlog.connect(address) as mq, mq.consume("Orders", group="audit", start_from="first") as consumer:
            for message in consumer:
                print(message.text)
                break
    """

    commit = _blocking(Consumer.commit)

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._original.group

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues assigned to this member."""
        return self._original.queues

    def __iter__(self) -> Iterator[BlockingDelivery]:
        while (delivery := self.next()) is not None:
            try:
                yield delivery
            except GeneratorExit:
                self._requeue(delivery)
                raise
            delivery.ack()

    def _requeue(self, delivery: BlockingDelivery) -> None:
        self._thread.call(lambda: self._original.requeue(delivery._delivery))

    def batches(self, count: int = 32) -> Iterator[list[BlockingDelivery]]:
        """Iterate over lists of at most `count` available messages; requesting the next list acknowledges the last."""
        batches = self._original.batches(count)
        try:
            while (batch := self._thread.run(anext(batches, None))) is not None:
                yield [BlockingDelivery(self._thread, delivery) for delivery in batch]
        finally:
            with suppress(ClientClosed):
                self._thread.run(batches.aclose())

    def next(self, seconds: float | None = None) -> BlockingDelivery | None:
        """Wait for the next message; None after `seconds`, or if the consumer is closed. Settle it with `ack()`."""
        delivery = self._thread.run(self._original.next(seconds))
        return None if delivery is None else BlockingDelivery(self._thread, delivery)

    def run(self, listener: Callable[[BlockingDelivery], object], *, concurrency: int = 20) -> None:
        """Call `listener` in threads for every message until closed: a return acknowledges, an exception retries."""

        def work(delivery: Delivery) -> None:
            token = _current_listener.set(self)
            try:
                listener(BlockingDelivery(self._thread, delivery))
            finally:
                _current_listener.reset(token)

        with ThreadPoolExecutor(concurrency, "orbitlog listener") as threads:

            async def call(delivery: Delivery) -> None:
                await asyncio.get_running_loop().run_in_executor(threads, work, delivery)

            self._thread.run(self._original.run(call, concurrency=concurrency))

    def close(self, *, work_seconds: float = WORK_SECONDS) -> None:
        """Commit, and leave the group; wait up to `work_seconds` for listeners of `run`, unless called by one."""
        is_listener = _current_listener.get() is self
        self._thread.run(self._original.close(work_seconds=0.0 if is_listener else work_seconds))


class BlockingReader(_ClosableTwin[Reader]):
    """A reader of some queues of a topic; iterate over it, or call `next`. See `Reader`.

    Example:
        with orbitlog.connect(address) as mq, mq.read("Orders", start="first") as reader:
            message = reader.next(10)
    """

    next = _blocking(Reader.next)
    assign = _blocking(Reader.assign)
    seek = _blocking(Reader.seek)
    pause = _blocking_plain(Reader.pause)
    resume = _blocking_plain(Reader.resume)
    positions = _blocking_plain(Reader.positions)
    close = _blocking(Reader.close)

    @property
    def topic(self) -> str:
        """The topic, without namespace."""
        return self._original.topic

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues."""
        return self._original.queues

    def __iter__(self) -> Iterator[Received]:
        while (message := self.next()) is not None:
            yield message


class BlockingRocketMQ(_Twin[RocketMQ]):
    """A blocking client of one cluster, created by `with orbitlog.connect(...)`; safe to use from several threads.

    It has the methods of `RocketMQ` without `await`; `consume` and `read` return blocking counterparts.

    Example:
        with orbitlog.connect(address) as mq:
            print(mq.send("Orders", "one"))
    """

    send = _blocking(RocketMQ.send)
    send_batch = _blocking(RocketMQ.send_batch)
    send_oneway = _blocking(RocketMQ.send_oneway)
    request = _blocking(RocketMQ.request)
    reply = _blocking(RocketMQ.reply)
    consume = _blocking_as(BlockingConsumer, RocketMQ.consume)
    read = _blocking_as(BlockingReader, RocketMQ.read)

    def __init__(self, make: Callable[[], RocketMQ]) -> None:
        thread = LoopThread()
        with ExitStack() as undo:
            undo.callback(thread.stop)
            super().__init__(thread, thread.call(make))
            undo.pop_all()
        self.admin = BlockingAdministration(thread, self._original.admin)

    @property
    def client_id(self) -> str:
        """The id of this client in the cluster."""
        return self._original.client_id

    def send_in_transaction(
        self,
        topic: str,
        body: bytes | str,
        branch: Branch,
        *,
        check: Check | None = None,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        timeout: float = SEND_SECONDS,
    ) -> tuple[Receipt, Outcome]:
        """Send a half message, run `branch`, and commit if it returns True; see `RocketMQ.send_in_transaction`.

        `branch` and `check` run in threads: they may block, and use the client.
        """
        return self._thread.run(
            self._original.send_in_transaction(
                topic,
                body,
                _in_thread(branch),
                check=None if check is None else _in_thread(check),
                tags=tags,
                keys=keys,
                properties=properties,
                timeout=timeout,
            )
        )

    def check_transactions(self, check: Check, *topics: str) -> None:
        """Answer transaction checks for this producer group; `check` runs in a thread."""
        self._thread.run(self._original.check_transactions(_in_thread(check), *topics))

    def close(self) -> None:
        """Close the client as `RocketMQ.close` does, and end its thread."""
        try:
            self._thread.run(self._original.close())
        except ClientClosed:
            return
        finally:
            self._thread.stop()


def _in_thread(function: Callable[[A], Awaitable[R] | R]) -> Callable[[A], Awaitable[R]]:
    """Return a coroutine function that calls a user's function in a thread."""

    async def call(argument: A) -> R:
        result = await asyncio.to_thread(function, argument)
        return await result if inspect.isawaitable(result) else result

    return call
