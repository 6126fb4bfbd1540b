"""The topic source over the network beside a mounted store: what the store has comes from its files, the rest not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from orbitlog.formats.message_queue import MessageQueue
from orbitlog.pipeline.network.cluster_session import close_sessions
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.read_plan import StoreShape
from orbitlog.pipeline.sources.source_errors import DataLoss
from orbitlog.pipeline.sources.source_options import parse_topic_options
from orbitlog.pipeline.sources.topic_source import TopicReader, TopicSource
from orbitlog.testing.running_broker import RunningBroker
from tests.support.source_runs import Stream, read_batch, struct

PLACE = "topic string, queueId int, queueOffset bigint"
QUEUES, ARCHIVED, LATER = 2, 200, 60
SMALL_SEGMENTS = {
    "brokerName": "broker-a",
    "mappedFileSizeCommitLog": "65536",
    "defaultTopicQueueNums": str(QUEUES),
}


@pytest.fixture(autouse=True)
def closed_sessions() -> Iterator[None]:
    yield
    close_sessions()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "live", SMALL_SEGMENTS) as running:
        send(running, 0, ARCHIVED)
        yield running


@pytest.fixture
def archive(broker: RunningBroker, tmp_path: Path) -> Path:
    """A copy of the store; the broker has received more since."""
    broker.stop_broker()
    shutil.copytree(broker.store, tmp_path / "archive")
    broker.start_broker()
    send(broker, ARCHIVED, ARCHIVED + LATER)
    return tmp_path / "archive"


def send(broker: RunningBroker, first: int, stop: int) -> None:
    with broker.connect() as mq:
        for number in range(first, stop):
            queue = MessageQueue("Orders", "broker-a", number % QUEUES)
            tag = "paid" if number % 3 else "open"
            mq.send("Orders", f"order {number}".ljust(900, "."), tags=tag, queue=queue if number else None)


def options(broker: RunningBroker, store: Path | None = None, **more: str) -> dict[str, str]:
    mounted = {} if store is None else {"storePath": f"broker-a={store}"}
    return {"nameServer": broker.address, "subscribe": "Orders", "brokerTimeoutMs": "10000", **mounted, **more}


def rows(given: dict[str, str], columns: str | None = None) -> list[dict[str, Any]]:
    table = read_batch(TopicSource, given, columns).to_pylist()
    return sorted(table, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def planned(given: dict[str, str]) -> dict[bool, int]:
    """Return how many messages a plan reads from files (True) and from brokers (False)."""
    reader = TopicReader(parse_topic_options(given, is_stream=False), struct(PLACE))
    counts = {True: 0, False: 0}
    for task in reader.partitions():
        for queue_range in task.value:
            counts[isinstance(queue_range.shape, StoreShape)] += queue_range.message_count
    return counts


def test_plan_reads_stored_messages_from_files_and_the_rest_from_the_broker(
    broker: RunningBroker, archive: Path
) -> None:
    given = options(broker, archive)
    assert planned(given) == {True: ARCHIVED, False: LATER}
    assert planned(options(broker)) == {True: 0, False: ARCHIVED + LATER}
    mixed = rows(given)
    assert len(mixed) == ARCHIVED + LATER
    assert mixed == rows(options(broker))


def test_store_of_the_running_broker_serves_all_messages(broker: RunningBroker) -> None:
    given = options(broker, broker.store)
    assert planned(given) == {True: ARCHIVED, False: 0}
    assert rows(given) == rows(options(broker))


OFFSETS = {"startingOffsets": '{"Orders":{"0":90,"1":99}}', "endingOffsets": '{"Orders":{"0":110,"1":100}}'}


@pytest.mark.parametrize("more", [{"tags": "open"}, {"minPartitions": "7"}, OFFSETS])
def test_options_hold_on_both_sides(broker: RunningBroker, archive: Path, more: dict[str, str]) -> None:
    expected = rows(options(broker, **more))
    assert expected
    assert rows(options(broker, archive, **more)) == expected


def test_times_hold_on_both_sides(broker: RunningBroker, archive: Path) -> None:
    stored = rows(options(broker), f"{PLACE}, storeTimestamp timestamp")
    for index in (ARCHIVED // 2, ARCHIVED + LATER // 2):
        time_ms = int(sorted(row["storeTimestamp"] for row in stored)[index].timestamp() * 1000)
        for name in ("startingTimestamp", "endingTimestamp"):
            expected = rows(options(broker, **{name: str(time_ms)}), PLACE)
            assert 0 < len(expected) < len(stored)
            assert rows(options(broker, archive, **{name: str(time_ms)}), PLACE) == expected


def test_archive_has_messages_that_retention_deleted_at_the_broker(broker: RunningBroker, archive: Path) -> None:
    broker.stop_broker()
    for segment in sorted((broker.store / "commitlog").iterdir())[:2]:
        segment.unlink()
    broker.start_broker()
    left = len(rows(options(broker), PLACE))
    assert left < ARCHIVED + LATER
    mixed = rows(options(broker, archive), "topic string, queueId int, queueOffset bigint, body binary")
    assert sorted(int(row["body"].split()[1].rstrip(b".")) for row in mixed) == list(range(ARCHIVED + LATER))
    everything = '{"Orders":{"0":0,"1":0}}'
    assert len(rows(options(broker, archive, startingOffsets=everything), PLACE)) == ARCHIVED + LATER
    with pytest.raises(DataLoss):
        rows(options(broker, startingOffsets=everything), PLACE)


def test_archive_that_ends_before_the_broker_begins_is_not_read(broker: RunningBroker, archive: Path) -> None:
    send(broker, 0, 200)
    broker.stop_broker()
    segments = sorted((broker.store / "commitlog").iterdir())
    for segment in segments[:-2]:
        segment.unlink()
    broker.start_broker()
    expected = rows(options(broker), PLACE)
    with pytest.warns(UserWarning, match="before the first message of its broker"):
        assert rows(options(broker, archive), PLACE) == expected


def test_stream_continues_from_files_to_the_broker(broker: RunningBroker, archive: Path) -> None:
    given = options(broker, archive, startingOffsets="earliest", maxOffsetsPerTrigger="150")
    stream = Stream(TopicSource, given, PLACE)
    counts = [stream.batch().num_rows, stream.batch().num_rows]
    send(broker, 0, 30)
    counts.append(stream.batch().num_rows)
    assert sum(counts) == ARCHIVED + LATER + 30


def test_store_of_another_broker_is_refused(broker: RunningBroker, tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "other", SMALL_SEGMENTS) as other:
        send(other, 0, 50)
        with pytest.raises(OptionError, match="of the broker; storePath must be the store of this broker"):
            rows(options(broker, other.store))
        given = options(broker) | {"storePath": f"broker-x={other.store}"}
        with pytest.raises(OptionError, match="has the name 'broker-x', but the brokers of the topics are broker-a"):
            rows(given)
