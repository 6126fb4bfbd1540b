"""The topic source over the network, without Spark: the rows, offsets and errors of the store source, from brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import datasource as filters

from orbitlog.client.connection.routes import Route
from orbitlog.errors import BrokerRefused, RemotingError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.pipeline.network.cluster_queues import ClusterQueues
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.source_errors import BrokerUnavailable, DataLoss
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.testing.running_broker import RunningBroker
from tests.support.source_runs import Stream, read_batch

PLACE = "topic string, queueId int, queueOffset bigint"
COUNT = 300


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    yield
    close_sessions()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    settings = {"enablePropertyFilter": "true", "defaultTopicQueueNums": "4", "brokerName": "broker-a"}
    with RunningBroker(tmp_path_factory.mktemp("store"), settings) as running:
        with running.connect() as mq:
            for number in range(COUNT):
                queue = MessageQueue("Orders", "broker-a", number % 4)
                mq.send(
                    "Orders",
                    f"order {number}",
                    tags="paid" if number % 3 else "open",
                    keys=[f"k{number}"],
                    properties={"amount": str(number)},
                    queue=queue if number > 4 else None,
                )
            mq.send("Large", "x" * 9000)
        yield running


def options(broker: RunningBroker, **more: str) -> dict[str, str]:
    topic = {} if {"subscribePattern", "assign"} & set(more) else {"subscribe": "Orders"}
    return {"nameServer": broker.address, "brokerTimeoutMs": "10000", **topic, **more}


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["queueId"], row["queueOffset"]


def test_rows_equal_those_of_the_store(broker: RunningBroker) -> None:
    pattern = {"subscribePattern": "Orders|Large"}
    over_network = read_batch(TopicSource, options(broker, **pattern)).to_pylist()
    from_files = read_batch(TopicSource, {"storePath": f"broker-a={broker.store}", **pattern}).to_pylist()
    assert len(over_network) == COUNT + 1
    assert sorted(over_network, key=place) == sorted(from_files, key=place)
    assert {len(row["body"]) for row in over_network if row["topic"] == "Large"} == {9000}


def test_order_within_a_queue_is_kept_with_small_tasks(broker: RunningBroker) -> None:
    rows = read_batch(TopicSource, options(broker, minPartitions="9", pullsInFlight="3"), PLACE).to_pylist()
    for queue_id in range(4):
        assert [row["queueOffset"] for row in rows if row["queueId"] == queue_id] == sorted(
            row["queueOffset"] for row in rows if row["queueId"] == queue_id
        )
    assert len({place(row) for row in rows}) == len(rows) == COUNT


def test_filters_are_evaluated_by_the_broker(broker: RunningBroker) -> None:
    assert len(read_batch(TopicSource, options(broker, tags="open"))) == COUNT // 3
    sql = read_batch(TopicSource, options(broker, sql="amount BETWEEN 10 AND 19"), "keys string").to_pylist()
    assert sorted(row["keys"] for row in sql) == [f"k{number}" for number in range(10, 20)]
    pushed = [filters.EqualTo(("tags",), "open"), filters.EqualTo(("queueId",), 1)]
    rows = read_batch(TopicSource, options(broker), "tags string, queueId int", pushed).to_pylist()
    assert rows
    assert {(row["tags"], row["queueId"]) for row in rows} == {("open", 1)}


def test_offsets_and_times_limit_a_batch(broker: RunningBroker) -> None:
    one = options(
        broker,
        assign='{"Orders":[1]}',
        startingOffsets='{"Orders":{"1":5}}',
        endingOffsets='{"Orders":{"broker-a":{"1":9}}}',
    )
    assert [row["queueOffset"] for row in read_batch(TopicSource, one, PLACE).to_pylist()] == [5, 6, 7, 8]
    stored = read_batch(TopicSource, options(broker), f"{PLACE}, storeTimestamp timestamp").to_pylist()
    middle = sorted(row["storeTimestamp"] for row in stored)[COUNT // 2]
    middle_ms = int(middle.timestamp() * 1000)
    later = read_batch(TopicSource, options(broker, startingTimestamp=str(middle_ms)), PLACE).to_pylist()
    earlier = read_batch(TopicSource, options(broker, endingTimestamp=str(middle_ms)), PLACE).to_pylist()
    assert sorted(map(place, later)) == sorted(place(row) for row in stored if row["storeTimestamp"] >= middle)
    assert len(later) + len(earlier) == COUNT
    with pytest.raises(OptionError, match="has no message stored at or after"):
        read_batch(TopicSource, options(broker, startingTimestamp="9999999999999"))


def test_mistakes_have_one_sentence(broker: RunningBroker) -> None:
    with pytest.raises(OptionError, match="no broker serves topic 'Order'; did you mean 'Orders'"):
        read_batch(TopicSource, options(broker) | {"subscribe": "Order"})
    with pytest.raises(OptionError, match="names queue 9 of Orders at broker-a, which does not exist"):
        read_batch(TopicSource, options(broker, startingOffsets='{"Orders":{"9":5}}'))
    with pytest.raises(DataLoss, match="ends at"):
        read_batch(TopicSource, options(broker, assign='{"Orders":[0]}', endingOffsets='{"Orders":{"0":99999}}'))


def test_stream_continues_and_finds_new_topics_and_queues(broker: RunningBroker) -> None:
    stream = Stream(TopicSource, options(broker, subscribePattern="Late.*"), PLACE)
    assert stream.batch().num_rows == 0
    with broker.connect() as mq:
        for number in range(20):
            mq.send("Late1", f"{number}")
        assert stream.batch().num_rows == 20
        assert stream.batch().num_rows == 0
        mq.send("Late2", "one")
        mq.send("Late1", "more")
    stream.start()  # a restart with nothing but the checkpoint
    assert sorted(row["topic"] for row in stream.batch().to_pylist()) == ["Late1", "Late2"]


def test_stream_limits_its_batches(broker: RunningBroker) -> None:
    stream = Stream(TopicSource, options(broker, startingOffsets="earliest", maxOffsetsPerTrigger="100"), PLACE)
    counts = [table.num_rows for table in stream.available_now()]
    assert sum(counts) == COUNT
    assert max(counts) <= 104
    stream = Stream(TopicSource, options(broker, startingOffsets="earliest", maxBytesPerTrigger="20000"), PLACE)
    counts = [table.num_rows for table in stream.available_now()]
    assert sum(counts) == COUNT
    assert len(counts) >= 3


def test_stream_waits_for_a_broker_that_is_down(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        with running.connect() as mq:
            mq.send("T", "one")
        stream = Stream(TopicSource, options(running, startingOffsets="earliest") | {"subscribe": "T"}, PLACE)
        assert stream.batch().num_rows == 1
        running.stop_broker()
        assert stream.batch().num_rows == 0  # no progress, no error, no loss
        running.start_broker()
        with running.connect() as mq:
            mq.send("T", "two")
        assert stream.batch().num_rows == 1
        running.stop_broker()
        with pytest.raises((BrokerUnavailable, OptionError)):
            Stream(TopicSource, options(running) | {"subscribe": "T"}, PLACE).batch()


def test_stream_waits_for_a_name_server_that_is_down(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        with running.connect() as mq:
            mq.send("T", "one")
        given = options(running, startingOffsets="earliest", brokerTimeoutMs="30000") | {"subscribe": "T"}
        stream = Stream(TopicSource, given, PLACE)
        assert stream.batch().num_rows == 1
        running.stop_name_server()
        restart = threading.Timer(0.5, running.start_name_server)
        restart.start()
        assert stream.batch().num_rows == 0  # no error: it waited, and nothing is new
        restart.join()
        impatient = options(running, brokerTimeoutMs="200") | {"subscribe": "T"}
        running.stop_name_server()
        with pytest.raises(RemotingError):
            Stream(TopicSource, impatient, PLACE).batch()  # a query that starts does not wait


def test_planned_batch_of_a_broker_that_is_down_is_not_lost(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        with running.connect() as mq:
            mq.send("T", "one")
        given = options(running, startingOffsets="earliest", failOnDataLoss="false") | {"subscribe": "T"}
        stream = Stream(TopicSource, given, PLACE)
        start = stream.reader.initialOffset()
        end = stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit())
        running.stop_broker()
        impatient = Stream(TopicSource, given | {"brokerTimeoutMs": "200"}, PLACE)
        with pytest.raises(BrokerUnavailable, match="restart the query"):
            impatient.rows(start, end)
        restart = threading.Timer(1.0, running.start_broker)
        restart.start()
        assert stream.rows(start, end).num_rows == 1  # planning waits for the broker, as tasks do
        restart.join()


@pytest.mark.parametrize("is_up", [True, False])
def test_broker_that_stops_or_starts_while_routes_are_asked_has_lost_nothing(
    is_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunningBroker(tmp_path / "store", {"brokerName": "b"}) as running:
        with running.connect() as mq:
            mq.send("T", "one")
        stream = Stream(TopicSource, options(running, startingOffsets="earliest") | {"subscribe": "T"}, PLACE)
        start = stream.reader.initialOffset()
        end = stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit())
        ask_route = ClusterQueues._route
        changes = [running.start_broker]
        if is_up:
            changes.append(running.stop_broker)
        else:
            running.stop_broker()

        async def route_of_a_changing_cluster(queues: ClusterQueues, topic: str) -> Route | None:
            missed = None if is_up else await ask_route(queues, topic)
            if changes:
                await asyncio.to_thread(changes.pop())
            return await ask_route(queues, topic) if is_up else missed

        monkeypatch.setattr(ClusterQueues, "_route", route_of_a_changing_cluster)
        assert stream.rows(start, end).num_rows == 1  # planned again: the queue was unknown, not deleted
        assert changes == []


def test_secured_cluster_needs_credentials_and_tls(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "store", secured=True) as running:
        with running.connect() as mq:
            mq.send("T", "one")
        assert running.tls is not None
        assert running.credentials is not None
        plain = {"nameServer": running.address, "subscribe": "T", "brokerTimeoutMs": "2000"}
        tls = {"tls": "true" if running.tls.check_host_name else "ca", "tlsCaFile": str(running.tls.ca_file)}
        keys = {"accessKey": running.credentials.access_key, "secretKey": running.credentials.secret_key}
        assert read_batch(TopicSource, plain | tls | keys, "body binary").to_pylist() == [{"body": b"one"}]
        with pytest.raises(BrokerRefused):
            read_batch(TopicSource, plain | tls | keys | {"secretKey": "wrong"})


def test_rate_limit_is_per_task(broker: RunningBroker) -> None:
    limited = options(broker, maxBytesPerSecondPerTask="1000000")
    assert len(read_batch(TopicSource, limited, PLACE)) == COUNT
