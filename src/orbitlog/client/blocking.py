"""The client for code without an event loop: the same names, each call waits for its result.

Nothing is implemented twice: the asynchronous client runs in a thread of its own, and every method here hands its call
over and waits.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from orbitlog.client.admin.administration import Administration
from orbitlog.client.consumer.delivery import Delivery
from orbitlog.client.consumer.group_consumer import WORK_SECONDS, Consumer
from orbitlog.client.consumer.group_link import StartFrom
from orbitlog.client.consumer.queue_reading import Reader
from orbitlog.client.consumer.received import Received
from orbitlog.client.producer.receipts import Receipt
from orbitlog.client.producer.transactional import Branch, Check, Outcome
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientClosed, ClientError
from orbitlog.formats.message_queue import MessageQueue

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_STOP_SECONDS = 10.0
_LISTENER = "orbitlog listener"


class _LoopThread:
    """An event loop in a thread of its own, for callers that have none.

    Nobody waits for a loop that has ended: whoever calls while it is being stopped, or waits for an answer then, hears
    that the client is closed.
    """

    def __init__(self) -> None:
        self._loop = _new_event_loop()
        self._gate = threading.RLock()  # a signal's handler may call while its thread is calling
        self._is_stopping = False
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orbitlog client", daemon=True)
        self._thread.start()

    def run(self, coming: Awaitable[R]) -> R:
        try:
            self._refuse_what_would_wait_for_ever()
        except ClientError:
            if isinstance(coming, Coroutine):
                coming.close()
            raise
        with self._gate:
            if self._is_stopping:
                if isinstance(coming, Coroutine):
                    coming.close()
                raise ClientClosed("the client is closed")
            future = asyncio.run_coroutine_threadsafe(_awaited(coming), self._loop)
        try:
            return future.result()
        except CancelledError:
            if not self._is_stopping:
                raise
            raise ClientClosed("the client was closed meanwhile") from None
        finally:
            future.cancel()  # does nothing to one that is done

    def _refuse_what_would_wait_for_ever(self) -> None:
        if threading.current_thread() is self._thread:
            raise ClientError("called from the client's own thread, which would wait for itself")
        if os.getpid() != self._process_id:
            raise ClientError("the process was forked, and the client's thread stayed behind: connect after the fork")

    def stop(self) -> None:
        if os.getpid() != self._process_id:
            return
        with self._gate:
            if self._is_stopping:
                return
            self._is_stopping = True
        ending = asyncio.run_coroutine_threadsafe(_end_tasks(), self._loop)
        with suppress(TimeoutError):
            ending.result(_STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


async def _end_tasks() -> None:
    """Cancel what other threads still wait for."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_STOP_SECONDS)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _awaited(coming: Awaitable[R]) -> R:
    return await coming


def _blocking(
    method: Callable[Concatenate[RocketMQ, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingRocketMQ, P], R]:
    @wraps(method)
    def call(twin: BlockingRocketMQ, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return twin._thread.run(method(twin._client, *args, **kwargs))

    return call


def _blocking_admin(
    method: Callable[Concatenate[Administration, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingAdministration, P], R]:
    @wraps(method)
    def call(twin: BlockingAdministration, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return twin._thread.run(method(twin._admin, *args, **kwargs))

    return call


class BlockingAdministration:
    """What operators ask and change."""

    cluster = _blocking_admin(Administration.cluster)
    brokers = _blocking_admin(Administration.brokers)
    topics = _blocking_admin(Administration.topics)
    topic_configs = _blocking_admin(Administration.topic_configs)
    create_topic = _blocking_admin(Administration.create_topic)
    delete_topic = _blocking_admin(Administration.delete_topic)
    topic_offsets = _blocking_admin(Administration.topic_offsets)
    groups = _blocking_admin(Administration.groups)
    create_group = _blocking_admin(Administration.create_group)
    delete_group = _blocking_admin(Administration.delete_group)
    progress = _blocking_admin(Administration.progress)
    reset_offsets = _blocking_admin(Administration.reset_offsets)
    message = _blocking_admin(Administration.message)

    def __init__(self, thread: _LoopThread, admin: Administration) -> None:
        self._thread = thread
        self._admin = admin

    @wraps(Administration.find)
    def find(self, topic: str, key: str, **options: Any) -> list[Received]:
        return self._thread.run(self._found(topic, key, options))

    async def _found(self, topic: str, key: str, options: dict[str, Any]) -> list[Received]:
        return [message async for message in self._admin.find(topic, key, **options)]


class BlockingRocketMQ:
    """The client; safe to use from several threads."""

    send = _blocking(RocketMQ.send)
    send_batch = _blocking(RocketMQ.send_batch)
    send_oneway = _blocking(RocketMQ.send_oneway)
    request = _blocking(RocketMQ.request)
    reply = _blocking(RocketMQ.reply)

    def __init__(self, make: Callable[[], RocketMQ]) -> None:
        self._thread = _LoopThread()
        with ExitStack() as undo:
            undo.callback(self._thread.stop)
            self._client = self._thread.run(_called(make))
            undo.pop_all()
        self.admin = BlockingAdministration(self._thread, self._client.admin)

    @wraps(RocketMQ.send_in_transaction)
    def send_in_transaction(
        self, topic: str, body: bytes | str, branch: Branch, *, check: Check | None = None, **options: Any
    ) -> tuple[Receipt, Outcome]:
        checking = None if check is None else _aside(check)
        return self._thread.run(
            self._client.send_in_transaction(topic, body, _aside(branch), check=checking, **options)
        )

    @wraps(RocketMQ.check_transactions)
    def check_transactions(self, check: Check, *topics: str) -> None:
        self._thread.run(self._client.check_transactions(_aside(check), *topics))

    @wraps(RocketMQ.consume)
    def consume(self, *topics: str, **options: Any) -> BlockingConsumer:
        return BlockingConsumer(self._thread, self._thread.run(self._client.consume(*topics, **options)))

    @wraps(RocketMQ.read)
    def read(self, topic: str, **options: Any) -> BlockingReader:
        return BlockingReader(self._thread, self._thread.run(self._client.read(topic, **options)))

    def close(self) -> None:
        """Close as the asynchronous client does, and end its thread."""
        try:
            self._thread.run(self._client.close())
        except ClientClosed:
            return
        finally:
            self._thread.stop()


def _aside(function: Callable[[T], Awaitable[R] | R]) -> Callable[[T], Awaitable[R]]:
    """Call a user's function in a thread: it may block, and use the client."""

    async def call(argument: T) -> R:
        result = await asyncio.to_thread(function, argument)
        return await result if inspect.isawaitable(result) else result

    return call


async def _called(what: Callable[[], R]) -> R:
    """Call something in the thread of the event loop."""
    return what()


class BlockingDelivery(Received):
    """A message of a consumer group, with `ack` and `retry` that wait."""

    __slots__ = ("_delivery", "_thread")

    def __init__(self, thread: _LoopThread, delivery: Delivery) -> None:
        super().__init__(delivery.stored, delivery.broker_name, delivery.local_attempts)
        self._thread = thread
        self._delivery = delivery

    @property
    def topic(self) -> str:
        return self._delivery.topic

    @property
    def is_settled(self) -> bool:
        return self._delivery.is_settled

    def ack(self) -> None:
        """It is done with."""
        self._thread.run(self._delivery.ack())

    def retry(self, after: float | None = None) -> None:
        """Have it delivered again, after about so many seconds."""
        self._thread.run(self._delivery.retry(after))


class BlockingConsumer:
    """A consumer to iterate over: a message counts as done when the next one is asked for."""

    def __init__(self, thread: _LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    @property
    def group(self) -> str:
        return self._consumer.group

    @property
    def queues(self) -> list[MessageQueue]:
        return self._consumer.queues

    def __iter__(self) -> Iterator[BlockingDelivery]:
        while (delivery := self.next()) is not None:
            try:
                yield delivery
            except GeneratorExit:
                self._thread.run(self._put_back(delivery))
                raise
            delivery.ack()

    def batches(self, count: int = 32) -> Iterator[list[BlockingDelivery]]:
        """Iterate over lists of what is there, at most `count`; done with when the next list is asked for."""
        batches = self._consumer.batches(count)
        try:
            while (batch := self._thread.run(anext(batches, None))) is not None:
                yield [BlockingDelivery(self._thread, delivery) for delivery in batch]
        finally:
            with suppress(ClientClosed):
                self._thread.run(batches.aclose())

    async def _put_back(self, delivery: BlockingDelivery) -> None:
        self._consumer.put_back(delivery._delivery)

    def next(self, seconds: float | None = None) -> BlockingDelivery | None:
        """Wait for the next message; None when the time is up or the consumer is closed. Needs its `ack`."""
        delivery = self._thread.run(self._consumer.next(seconds))
        return None if delivery is None else BlockingDelivery(self._thread, delivery)

    def run(self, listener: Callable[[BlockingDelivery], object], *, concurrency: int = 20) -> None:
        """Call `listener` in threads for every message until closed: returning is `ack`, raising is `retry`."""
        with ThreadPoolExecutor(concurrency, _LISTENER) as threads:

            async def call(delivery: Delivery) -> None:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(threads, listener, BlockingDelivery(self._thread, delivery))

            self._thread.run(self._consumer.run(call, concurrency=concurrency))

    def commit(self) -> None:
        self._thread.run(self._consumer.commit())

    def close(self) -> None:
        """Give the queues back; listeners of `run` may finish the message that they work on."""
        # One that closes its own consumer cannot be waited for.
        is_listener = threading.current_thread().name.startswith(_LISTENER)
        self._thread.run(self._consumer.close(work_seconds=0.0 if is_listener else WORK_SECONDS))

    def __enter__(self) -> BlockingConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingReader:
    """A reader to iterate over."""

    def __init__(self, thread: _LoopThread, reader: Reader) -> None:
        self._thread = thread
        self._reader = reader

    @property
    def topic(self) -> str:
        return self._reader.topic

    @property
    def queues(self) -> list[MessageQueue]:
        return self._reader.queues

    def __iter__(self) -> Iterator[Received]:
        while (message := self.next()) is not None:
            yield message

    def next(self, seconds: float | None = None) -> Received | None:
        """Wait for the next message; None when the time is up or the reader is closed."""
        return self._thread.run(self._reader.next(seconds))

    def assign(
        self, queues: Sequence[MessageQueue] | None = None, start: datetime | str | int = StartFrom.FIRST
    ) -> None:
        """Read these queues (all of the topic if None) from `start` on, and no others."""
        self._thread.run(self._reader.assign(queues, start))

    def seek(self, queue: MessageQueue, to: int | datetime | str) -> None:
        """Go on elsewhere in a queue: at an offset, its begin, its end, or a moment."""
        self._thread.run(self._reader.seek(queue, to))

    def pause(self, *queues: MessageQueue) -> None:
        """Fetch no more of these queues (of all, if none are named) until `resume`."""
        self._thread.run(_called(lambda: self._reader.pause(*queues)))

    def resume(self, *queues: MessageQueue) -> None:
        """Fetch these queues again (all, if none are named)."""
        self._thread.run(_called(lambda: self._reader.resume(*queues)))

    def positions(self) -> Mapping[MessageQueue, int]:
        """The offset of the next message of each queue that was not handed out."""
        return self._thread.run(_called(self._reader.positions))

    def close(self) -> None:
        self._thread.run(self._reader.close())

    def __enter__(self) -> BlockingReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
