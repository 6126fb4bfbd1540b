"""The blocking client: same methods, signatures and results as the asyncio client."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable

import pytest

from orbitlog.client import blocking
from orbitlog.client.admin.administration import Administration
from orbitlog.client.blocking import (
    BlockingAdministration,
    BlockingConsumer,
    BlockingDelivery,
    BlockingReader,
    BlockingRocketMQ,
)
from orbitlog.client.consumer.delivery import Delivery
from orbitlog.client.consumer.group_consumer import WORK_SECONDS, Consumer
from orbitlog.client.consumer.topic_reader import Reader
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientClosed, ClientError, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.testing.running_broker import RunningBroker

SECONDS_MAX = 20


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


PAIRS = [(BlockingRocketMQ, RocketMQ), (BlockingAdministration, Administration), (BlockingReader, Reader)]
# Methods that other parts of the client call, and users do not.
INTERNAL = {
    *("start", "heartbeat_data", "membership_changed", "consume_directly", "plain_name"),
    *("requeue", "redeliver", "retry"),
}


@pytest.mark.parametrize(("twin", "original"), PAIRS)
def test_blocking_class_has_every_name(twin: type, original: type) -> None:
    assert public(twin) == public(original)


def test_blocking_consumer_has_every_public_name() -> None:
    assert public(BlockingConsumer) == public(Consumer) - INTERNAL


def parameters(function: Callable[..., object]) -> list[tuple[str, object, object, object]]:
    """Names, kinds, defaults and annotations; annotations of callbacks that get a delivery differ."""
    return [
        (each.name, each.kind, each.default, str(each.annotation).replace("Blocking", ""))
        for each in inspect.signature(function).parameters.values()
    ]


@pytest.mark.parametrize(("twin", "original"), [*PAIRS, (BlockingConsumer, Consumer), (BlockingDelivery, Delivery)])
def test_blocking_signatures_equal_the_asyncio_ones(twin: type, original: type) -> None:
    for name in (public(twin) & public(original)) - {"properties"}:
        blocking_method, method = getattr(twin, name), getattr(original, name)
        assert not any(each[1] is inspect.Parameter.VAR_KEYWORD for each in parameters(blocking_method)), name
        if (twin, name) != (BlockingConsumer, "run"):  # its listener is a plain function over a BlockingDelivery
            assert parameters(blocking_method) == parameters(method), name


def test_blocking_module_has_no_untyped_options() -> None:
    assert "**options" not in inspect.getsource(blocking)


def test_blocking_client_end_to_end(orbitlog_broker: RunningBroker) -> None:
    with orbitlog_broker.connect() as mq:
        mq.admin.create_topic("Plain", 1)
        receipt = mq.send("Plain", "one", keys=["k"])
        mq.send_batch("Plain", ["two", "three"])
        assert [each.text for each in mq.admin.find("Plain", "k")] == ["one"]
        found = mq.admin.message(receipt.offset_message_id)
        assert found is not None and found.text == "one"
        with mq.read("Plain") as reader:
            assert [reader.next(SECONDS_MAX).text for _ in range(3)] == ["one", "two", "three"]  # type: ignore[union-attr]
            reader.seek(reader.queues[0], 1)
            assert next(iter(reader)).text == "two"
        consumer = mq.consume("Plain", group="plain", start_from="first")
        for message in consumer:
            if message.text == "two":
                break
        seen: list[str] = []

        def listener(message: BlockingDelivery) -> None:
            seen.append(message.text)
            if len(seen) == 2:
                threading.Thread(target=consumer.close).start()

        consumer.run(listener, concurrency=2)
        assert sorted(seen) == ["three", "two"]
        assert orbitlog_broker.lag("plain") == 0
    with pytest.raises(ClientClosed):
        mq.send("Plain", "late")
    mq.close()


def test_listener_that_closes_its_consumer_does_not_wait_for_itself(orbitlog_broker: RunningBroker) -> None:
    with orbitlog_broker.connect() as mq:
        mq.send("Closing", "one")
        consumer = mq.consume("Closing", group="closing", start_from="first")
        closed_in: list[float] = []

        def listener(_: BlockingDelivery) -> None:
            started = time.monotonic()
            consumer.close()
            closed_in.append(time.monotonic() - started)

        consumer.run(listener, concurrency=1)
        assert closed_in[0] < WORK_SECONDS


def test_batches_and_a_reader_that_pauses(orbitlog_broker: RunningBroker) -> None:
    with orbitlog_broker.connect() as mq:
        mq.admin.create_topic("Twin", 1)
        mq.send_batch("Twin", (str(number) for number in range(3)))
        with mq.consume("Twin", group="lists", start_from="first") as consumer:
            seen = []
            for batch in consumer.batches(2):
                seen += [each.text for each in batch]
                if len(seen) >= 3:
                    break
        assert seen == ["0", "1", "2"]
        with mq.consume("Twin", group="lists") as consumer:
            assert consumer.next(SECONDS_MAX).text in seen[-2:]  # type: ignore[union-attr]  # its list was left
        with mq.read("Twin") as reader:
            reader.pause()
            reader.assign(start=2)
            assert reader.next(SECONDS_MAX).text == "2"  # type: ignore[union-attr]
            assert reader.positions() == {reader.queues[0]: 3}
            with pytest.raises(ClientError, match="is not assigned"):
                reader.resume(MessageQueue("Twin", "nobody", 0))


def test_call_during_close_raises_client_closed(orbitlog_broker: RunningBroker) -> None:
    """Threads that ask while another one closes: each gets its answer, or hears that the client is closed."""
    told: list[str] = []

    def ask(mq: BlockingRocketMQ, asked: threading.Event) -> None:
        try:
            while True:
                mq.admin.topics()
                asked.set()
        except (ClientClosed, RemotingError) as error:
            told.append(type(error).__name__)

    for _ in range(5):
        with orbitlog_broker.connect() as mq:
            events = [threading.Event() for _ in range(4)]
            threads = [threading.Thread(target=ask, args=(mq, each), daemon=True) for each in events]
            for thread in threads:
                thread.start()
            assert all(each.wait(SECONDS_MAX) for each in events)
        for thread in threads:
            thread.join(SECONDS_MAX)
            assert not thread.is_alive()
    assert len(told) == 20


def test_call_after_fork_raises_client_error(orbitlog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with orbitlog_broker.connect() as mq:
        with monkeypatch.context() as child:
            child.setattr("orbitlog.client.connection.loop_thread.os.getpid", lambda: -1)
            with pytest.raises(ClientError, match="connect after the fork"):
                mq.admin.topics()
        mq.admin.topics()


def test_client_used_without_entering_raises_with_advice(orbitlog_broker: RunningBroker) -> None:
    with pytest.raises(AttributeError, match=r"async with orbitlog\.connect"):
        orbitlog_broker.connect().send("Plain", "one")


def test_failed_connect_leaves_no_thread(orbitlog_broker: RunningBroker) -> None:
    before = set(threading.enumerate())  # fixtures of other modules may have clients
    with pytest.raises(ClientError), orbitlog_broker.connect(producer_group="no name!"):
        pass
    assert "orbitlog client" not in {thread.name for thread in set(threading.enumerate()) - before}
