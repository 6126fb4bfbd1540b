"""One queue: what is fetched from where, what is handed on, and what counts when it is moved."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from orbitlog.client.consumer.group_link import PullResult
from orbitlog.client.consumer.queue_feed import QueueFeed
from orbitlog.client.consumer.subscriptions import make_subscription
from orbitlog.errors import ConnectionLost, OrbitlogError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records.message import Message, encode_message, make_message

QUEUE = MessageQueue("Orders", "a", 0)


def record(queue_offset: int, tags: str = "t") -> Message:
    return make_message("Orders", b"%d" % queue_offset, properties={"TAGS": tags}, queue_offset=queue_offset)


def found(*messages: Message, broker_id: int = 0) -> PullResult:
    body = b"".join(map(encode_message, messages))
    following = messages[-1].queue_offset + 1
    return PullResult(body, following, 0, following, False, broker_id)


class Broker:
    """Answers pulls with the given results in turn; later pulls wait."""

    def __init__(self, *answers: PullResult | OrbitlogError) -> None:
        self.answers = list(answers)
        self.pulls: list[tuple[int, int | None, int]] = []

    async def pull(self, _: object, queue_offset: int, __: object, commit: int | None, broker_id: int) -> PullResult:
        self.pulls.append((queue_offset, commit, broker_id))
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, OrbitlogError):
            raise answer
        return answer


def run(
    scenario: Callable[[QueueFeed, list[Message]], Coroutine[Any, Any, None]], broker: Broker, **options: Any
) -> None:
    async def whole() -> None:
        delivered: list[Message] = []
        subscription = make_subscription("Orders", options.pop("tags", "*"))
        feed = QueueFeed(
            QUEUE,
            0,
            broker,
            subscription,
            lambda _, message: delivered.append(message),
            **options,  # type: ignore[arg-type]
        )
        for _ in range(10):
            await asyncio.sleep(0)
        await scenario(feed, delivered)
        await feed.stop()

    asyncio.run(whole())


def offsets(messages: list[Message]) -> list[int]:
    return [message.queue_offset for message in messages]


def test_message_with_colliding_tag_hash_is_skipped_and_committed() -> None:
    async def scenario(feed: QueueFeed, delivered: list[Message]) -> None:
        assert offsets(delivered) == [1]
        assert feed.window.commit_offset == 1
        assert feed.finish(feed.window, 1) and not feed.finish(feed.window, 1)
        assert feed.window.commit_offset == 3

    run(scenario, Broker(found(record(0, "BBBB"), record(1, "AaAa"), record(2, "BBBB"))), tags="AaAa")


def test_ordered_feed_delivers_one_message_at_a_time() -> None:
    async def scenario(feed: QueueFeed, delivered: list[Message]) -> None:
        assert offsets(delivered) == [0]
        feed.mark_busy()
        assert not feed.idle.is_set()
        feed.requeue(feed.window, delivered[0], 0)
        await asyncio.sleep(0.01)
        assert offsets(delivered) == [0, 0] and feed.attempts(0) == 1
        feed.finish(feed.window, 0)
        assert offsets(delivered) == [0, 0, 1] and feed.attempts(0) == 0

    run(scenario, Broker(found(record(0), record(1))), ordered=True)


def test_delivery_from_before_a_reset_is_stale() -> None:
    async def scenario(feed: QueueFeed, delivered: list[Message]) -> None:
        before = feed.window
        feed.requeue(before, delivered[0], 0)
        feed.reset_to(0)
        assert not feed.finish(before, 0)
        await asyncio.sleep(0.01)
        assert offsets(delivered) == [0]
        assert feed.committed_to == -1 and feed.window.commit_offset == 0

    run(scenario, Broker(found(record(0))))


def test_deleted_offset_moves_to_the_first_available_one() -> None:
    moved = PullResult(b"", 70, 70, 90, True)
    broker = Broker(moved, found(record(70)))

    async def scenario(_: QueueFeed, delivered: list[Message]) -> None:
        assert [pull[0] for pull in broker.pulls] == [0, 70, 71]
        assert offsets(delivered) == [70]

    run(scenario, broker)


def test_replica_is_read_if_suggested_and_never_committed_to() -> None:
    broker = Broker(found(record(0), broker_id=1), found(record(1), broker_id=1), ConnectionLost("gone"))

    async def scenario(feed: QueueFeed, delivered: list[Message]) -> None:
        assert offsets(delivered) == [0, 1]
        assert [pull[2] for pull in broker.pulls] == [0, 1, 1]
        assert feed.committed_to == -1

    run(scenario, broker)


def test_lost_broker_is_pulled_again_and_gets_the_commit_repeated(monkeypatch: Any) -> None:
    monkeypatch.setattr("orbitlog.client.consumer.queue_feed.AFTER_FAILURE_SECONDS", 0.0)
    broker = Broker(found(record(0)), ConnectionLost("gone"), found(record(1)))
    lost: list[bool] = []

    async def scenario(feed: QueueFeed, delivered: list[Message]) -> None:
        await asyncio.sleep(0.01)
        assert offsets(delivered) == [0, 1] and lost == [True]
        feed.finish(feed.window, 0)
        feed.finish(feed.window, 1)
        assert feed.committed_to < feed.window.commit_offset == 2

    run(scenario, broker, on_unreachable=lambda: lost.append(True))


def test_stopped_feed_leaves_no_garbage_cycles() -> None:
    async def whole() -> None:
        feed = QueueFeed(QUEUE, 0, Broker(found(record(0))), make_subscription("Orders", "*"), lambda *_: None)  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.sleep(0)
        await feed.stop()
        gone = weakref.ref(feed)
        del feed
        await asyncio.sleep(0)
        assert gone() is None

    gc.disable()
    try:
        asyncio.run(whole())
    finally:
        gc.enable()


def test_feed_stopped_before_its_first_pull() -> None:
    async def whole() -> None:
        broker = Broker()
        await QueueFeed(QUEUE, 0, broker, make_subscription("Orders", "*"), lambda *_: None).stop()  # type: ignore[arg-type]
        assert not broker.pulls

    asyncio.run(whole())
