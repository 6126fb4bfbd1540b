"""The client without an event loop: the same names, the same results."""

from __future__ import annotations

import inspect
import threading

import pytest

from orbitlog.client.administration import Administration
from orbitlog.client.blocking import BlockingAdministration, BlockingDelivery, BlockingRocketMQ
from orbitlog.client.rocketmq import RocketMQ
from orbitlog.errors import ClientClosed, ClientError
from orbitlog.testing.running_broker import RunningBroker

SECONDS_MAX = 20


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


@pytest.mark.parametrize(("twin", "original"), [(BlockingRocketMQ, RocketMQ), (BlockingAdministration, Administration)])
def test_the_twin_has_every_name(twin: type, original: type) -> None:
    assert public(twin) == public(original)


def test_a_day_without_an_event_loop(orbitlog_broker: RunningBroker) -> None:
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


def test_a_mistake_leaves_no_thread_behind(orbitlog_broker: RunningBroker) -> None:
    with pytest.raises(ClientError), orbitlog_broker.connect(producer_group="no name!"):
        pass
    assert "orbitlog client" not in {thread.name for thread in threading.enumerate()}
