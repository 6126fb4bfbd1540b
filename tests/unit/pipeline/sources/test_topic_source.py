"""Topics through their queues: every message of the golden stores, and what users of Kafka's source expect."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import datasource as filters

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import names
from orbitlog.formats.records import flags
from orbitlog.formats.records.compression import compress_body
from orbitlog.formats.records.message import make_message
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
from orbitlog.pipeline.sources.message_columns import BodyError
from orbitlog.pipeline.sources.source_errors import DataLoss
from orbitlog.pipeline.sources.topic_source import TopicSource
from orbitlog.settings.store_settings import StoreGeometry
from orbitlog.store.message_store import MessageStore
from orbitlog.storefiles.store_config import StoreConfig
from orbitlog.testing.golden import GoldenStore
from tests.support.source_runs import EVERYTHING, Stream, read_batch

GEOMETRY = StoreGeometry(segment_bytes=4096, queue_file_bytes=200)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLACE = "topic string, queueId int, queueOffset bigint"


@pytest.fixture(params=["golden_497", "golden_550_crash"])
def golden(request: pytest.FixtureRequest) -> GoldenStore:
    return request.getfixturevalue(request.param)


def row_of(message: dict[str, Any], broker_name: str) -> dict[str, Any]:
    """Return the expected row, from Java's decoding of a message."""
    milliseconds = timedelta(milliseconds=1)
    return {
        "topic": message["topic"],
        "queueId": message["queueId"],
        "queueOffset": message["queueOffset"],
        "brokerName": broker_name,
        "body": message["bodySha256"],
        "tags": message["tags"],
        "keys": message["keys"],
        "uniqKey": message["uniqKey"],
        "properties": message["properties"],
        "flag": message["flag"],
        "sysFlag": message["sysFlag"],
        "bornTimestamp": EPOCH + message["bornTimestamp"] * milliseconds,
        "storeTimestamp": EPOCH + message["storeTimestamp"] * milliseconds,
        "bornHost": message["bornHost"].replace(" ", ":"),
        "storeHost": message["storeHost"].replace(" ", ":"),
        "reconsumeTimes": message["reconsumeTimes"],
        "commitLogOffset": message["commitLogOffset"],
        "storeSize": message["storeSize"],
        "msgId": message["uniqKey"] or message["offsetMsgId"],
    }


def rows_of(table: Any) -> list[dict[str, Any]]:
    rows = table.to_pylist()
    for row in rows:
        row["body"] = hashlib.sha256(row["body"]).hexdigest()
        row["properties"] = dict(row["properties"])
    return rows


def test_every_message_of_a_golden_store_through_the_queues(golden: GoldenStore) -> None:
    found = rows_of(read_batch(TopicSource, {"storePath": f"b={golden.store}", "subscribePattern": ".*"}))
    queued = [message for message in golden.manifest["messages"] if flags.enters_queue(message["sysFlag"])]
    key = ("topic", "queueId", "queueOffset")
    expected = sorted((row_of(message, "b") for message in queued), key=lambda row: [row[name] for name in key])
    assert sorted(found, key=lambda row: [row[name] for name in key]) == expected


def test_every_message_of_a_golden_log(golden: GoldenStore) -> None:
    for split_bytes in ("65536", "134217728"):
        options = {"storePath": f"b={golden.store}", "splitBytes": split_bytes}
        found = rows_of(read_batch(CommitLogSource, options))
        assert found == [row_of(message, "b") for message in golden.manifest["messages"]]


def test_columns_that_must_be_asked_for(golden: GoldenStore) -> None:
    columns = "offsetMsgId string, bodyCRC int, preparedTransactionOffset bigint"
    found = read_batch(CommitLogSource, {"path": str(golden.store)}, columns).to_pylist()
    assert found == [
        {name: message[name] for name in ("offsetMsgId", "bodyCRC", "preparedTransactionOffset")}
        for message in golden.manifest["messages"]
    ]


def test_bounds_are_those_that_java_opens_the_store_with(golden: GoldenStore) -> None:
    stream = Stream(TopicSource, {"storePath": f"b={golden.store}", "subscribePattern": ".*"}, PLACE)
    latest = stream.reader.initialOffset()
    expected = [queue for queue in golden.manifest["afterOpen"]["queues"] if queue["maxOffset"]]
    assert {(t, int(q)): n for t, brokers in latest.items() for q, n in brokers["b"].items() if n} == {
        (queue["topic"], queue["queueId"]): queue["maxOffset"] for queue in expected
    }


def test_searches_by_time_are_those_of_5x(golden_550_crash: GoldenStore) -> None:
    queues = [queue for queue in golden_550_crash.manifest["queues"] if queue["maxOffset"] > 3][:6]
    for queue in queues:
        name = f'{{"{queue["topic"]}":[{queue["queueId"]}]}}'
        for search in queue["searchOffset"]:
            options = {"storePath": f"b={golden_550_crash.store}", "assign": name}
            options |= {"startingTimestamp": str(search["timestamp"])}
            options |= {"startingOffsetsByTimestampStrategy": "latest"}
            rows = read_batch(TopicSource, options, "queueOffset bigint, storeTimestamp timestamp").to_pylist()
            late = EPOCH + search["timestamp"] * timedelta(milliseconds=1)
            assert all(row["storeTimestamp"] >= late for row in rows)
            # Java answers with the last message where all are too early; nothing is stored at or after that time.
            first = rows[0]["queueOffset"] if rows else queue["maxOffset"]
            assert first in (search["offset"], search["offset"] + 1)


# Stores of our own


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", StoreConfig(GEOMETRY), lambda: 1_000) as store:
        yield store


Send = Callable[..., None]


@pytest.fixture
def send(writer: MessageStore) -> Send:
    """Append messages and let them be read; `body` is the number unless given."""

    def append(topic: str, count: int = 1, queue_id: int = 0, **more: Any) -> None:
        for number in range(count):
            writer.append(make_message(topic, **{"body": str(number).encode(), "queue_id": queue_id, **more}))
        writer.flush_log()
        writer.dispatch_once()

    return append


@pytest.fixture
def store(tmp_path: Path) -> dict[str, str]:
    return {"storePath": f"b={tmp_path / 'store'}"}


def places(table: Any) -> list[tuple[str, int, int]]:
    return sorted((row["topic"], row["queueId"], row["queueOffset"]) for row in table.to_pylist())


def queue(topic: str, queue_id: int, start: int, stop: int) -> list[tuple[str, int, int]]:
    return [(topic, queue_id, number) for number in range(start, stop)]


def test_offsets_are_the_next_to_read_on_both_ends(send: Send, store: dict[str, str]) -> None:
    send("T", 30)
    options = {**store, "subscribe": "T", "startingOffsets": '{"T":{"0":7}}', "endingOffsets": '{"T":{"0":9}}'}
    assert places(read_batch(TopicSource, options, PLACE)) == queue("T", 0, 7, 9)
    empty = {**options, "endingOffsets": '{"T":{"b":{"0":7}}}'}
    assert read_batch(TopicSource, empty, PLACE).num_rows == 0
    everything = {**options, "startingOffsets": '{"T":{"0":-2}}', "endingOffsets": '{"T":{"0":-1}}'}
    assert places(read_batch(TopicSource, everything, PLACE)) == queue("T", 0, 0, 30)


def test_a_batch_in_many_partitions_is_the_same_batch(send: Send, store: dict[str, str]) -> None:
    send("T", 50)
    send("T", 20, queue_id=1)
    for partitions in ("1", "7", "100"):
        options = {**store, "subscribe": "T", "minPartitions": partitions}
        assert places(read_batch(TopicSource, options, PLACE)) == queue("T", 0, 0, 50) + queue("T", 1, 0, 20)


def test_two_stores_at_once(send: Send, store: dict[str, str], tmp_path: Path, golden_497: GoldenStore) -> None:
    send("CustomQueues", 4)
    options = {"storePath": f"{store['storePath']},a={golden_497.store}", "subscribe": "CustomQueues"}
    rows = read_batch(TopicSource, options, "brokerName string, queueId int").to_pylist()
    assert sum(row["brokerName"] == "b" for row in rows) == 4
    assert {row["brokerName"] for row in rows} == {"a", "b"}


def test_tags_are_compared_by_hash_and_then_by_text(send: Send, store: dict[str, str]) -> None:
    for tag in ("Aa", "BB", "C", None, "Aa"):  # the first two have the same hash
        send("T", properties={"TAGS": tag} if tag else {})
    rows = read_batch(TopicSource, {**store, "subscribe": "T", "tags": "Aa || C"}, "tags string, queueOffset bigint")
    assert [(row["tags"], row["queueOffset"]) for row in rows.to_pylist()] == [("Aa", 0), ("C", 2), ("Aa", 4)]


def test_filtered_gaps_are_no_loss_for_a_stream(send: Send, store: dict[str, str]) -> None:
    stream = Stream(TopicSource, {**store, "subscribe": "T", "tags": "A", "startingOffsets": "earliest"}, PLACE)
    for tag in "BABBA":
        send("T", properties={"TAGS": tag})
    assert places(stream.batch()) == [("T", 0, 1), ("T", 0, 4)]
    send("T", properties={"TAGS": "B"})
    assert stream.batch().num_rows == 0
    send("T", properties={"TAGS": "A"})
    assert places(stream.batch()) == [("T", 0, 6)]


def test_delayed_messages_have_times_for_hashes_and_are_found_by_tag(golden_497: GoldenStore) -> None:
    options = {"storePath": str(golden_497.store), "subscribe": names.SCHEDULE_TOPIC, "tags": "Delay"}
    expected = [m for m in golden_497.manifest["messages"] if m["topic"] == names.SCHEDULE_TOPIC]
    found = read_batch(TopicSource, options, "tags string")
    assert found.num_rows == sum(message["tags"] == "Delay" for message in expected) > 0


def test_the_columns_of_kafkas_source(send: Send, store: dict[str, str]) -> None:
    send("T", body=b"v", properties={"KEYS": "k", "p": "q"})
    options = {**store, "subscribe": "T", "schema": "kafka"}
    (row,) = read_batch(TopicSource, options).to_pylist()
    time = EPOCH + timedelta(seconds=1)
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "T",
        "partition": 0,
        "offset": 0,
        "timestamp": time,
        "timestampType": 1,
    }
    (row,) = read_batch(TopicSource, {**options, "includeHeaders": "true"}).to_pylist()
    assert {"key": "p", "value": b"q"} in row["headers"]


def test_compressed_bodies(send: Send, store: dict[str, str]) -> None:
    body = b"a long body " * 100
    sys_flag = flags.with_compression(0, flags.CompressionType.ZLIB)
    send("T", body=compress_body(body, flags.CompressionType.ZLIB), sys_flag=sys_flag)
    send("T", body=body)
    options = {**store, "subscribe": "T"}
    assert read_batch(TopicSource, options, "body binary")["body"].to_pylist() == [body, body]
    as_stored = read_batch(TopicSource, {**options, "inflate": "false"}, "body binary")["body"].to_pylist()
    assert len(as_stored[0]) < len(as_stored[1])
    send("T", body=b"no zlib", sys_flag=sys_flag)
    with pytest.raises(BodyError, match="option inflate=false reads it as it is stored"):
        read_batch(TopicSource, options, "body binary")


def test_unknown_topics_and_columns_are_answered_with_near_ones(send: Send, store: dict[str, str]) -> None:
    send("Orders")
    with pytest.raises(StoreLayoutError, match="no store has topic 'Order'; did you mean 'Orders'"):
        read_batch(TopicSource, {**store, "subscribe": "Order"})
    with pytest.raises(OptionError, match="unknown column 'queueid_'; did you mean queueId"):
        TopicSource({**store, "subscribe": "Orders"}).reader(renamed("queueid_"))
    with pytest.raises(OptionError, match="column topic has type string, not int"):
        read_batch(TopicSource, {**store, "subscribe": "Orders"}, "topic int")
    with pytest.raises(OptionError, match="column tags is nullable"):
        read_batch(TopicSource, {**store, "subscribe": "Orders"}, "topic string NOT NULL, tags string NOT NULL")
    missing = {**store, "subscribe": "Orders", "startingOffsets": '{"Orders":{"3":0}}'}
    with pytest.raises(OptionError, match="names queue 3 of Orders at b, which does not exist or is not subscribed"):
        read_batch(TopicSource, missing, PLACE)
    send("Orders", queue_id=1)
    with pytest.raises(OptionError, match="lacks queue 1 of Orders at b"):
        read_batch(TopicSource, {**missing, "startingOffsets": '{"Orders":{"0":0}}'}, PLACE)


def renamed(name: str) -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField(name, StringType())])


def test_a_start_after_every_message(send: Send, store: dict[str, str]) -> None:
    send("T", 3)
    late = {**store, "subscribe": "T", "startingTimestamp": "1001"}
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy=latest"):
        read_batch(TopicSource, late, PLACE)
    latest = {**late, "startingOffsetsByTimestampStrategy": "latest"}
    assert read_batch(TopicSource, latest, PLACE).num_rows == 0
    ended = {**store, "subscribe": "T", "endingTimestamp": "1000"}
    assert read_batch(TopicSource, ended, PLACE).num_rows == 0
    by_queue = {**store, "subscribe": "T", "startingOffsetsByTimestamp": '{"T":{"0":1000}}'}
    assert read_batch(TopicSource, by_queue, PLACE).num_rows == 3


# Streams


def test_stream_resumes_where_its_checkpoint_states(send: Send, store: dict[str, str]) -> None:
    send("T", 5)
    stream = Stream(TopicSource, {**store, "subscribe": "T", "startingOffsets": "earliest"}, PLACE)
    assert places(stream.batch()) == queue("T", 0, 0, 5)
    send("T", 2)
    stream.start()
    with pytest.warns(UserWarning, match="starting options apply only to new queries"):
        assert places(stream.batch()) == queue("T", 0, 5, 7)
    stream.start()
    with pytest.warns(UserWarning, match="starting options apply only to new queries"):
        assert stream.batch().num_rows == 0


def test_a_new_stream_starts_at_the_end(send: Send, store: dict[str, str]) -> None:
    send("T", 5)
    stream = Stream(TopicSource, {**store, "subscribe": "T"}, PLACE)
    assert stream.batch().num_rows == 0
    send("T", 1)
    assert places(stream.batch()) == queue("T", 0, 5, 6)


def test_queues_and_topics_that_come_later_are_read_from_their_beginning(send: Send, store: dict[str, str]) -> None:
    send("Ta", 5)
    stream = Stream(TopicSource, {**store, "subscribePattern": "T."}, PLACE)
    assert stream.batch().num_rows == 0
    send("Ta", 3, queue_id=1)
    send("Tb", 2)
    send("Other", 2)
    assert places(stream.batch()) == queue("Ta", 1, 0, 3) + queue("Tb", 0, 0, 2)


def test_a_micro_batch_takes_no_more_than_it_may(send: Send, store: dict[str, str]) -> None:
    send("T", 90)
    send("T", 10, queue_id=1)
    options = {**store, "subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    tables = list(Stream(TopicSource, options, PLACE).available_now())
    assert places(tables[0]) == queue("T", 0, 0, 18) + queue("T", 1, 0, 2)
    assert all(table.num_rows <= 22 for table in tables)
    assert sorted(place for table in tables for place in places(table)) == queue("T", 0, 0, 90) + queue("T", 1, 0, 10)
    # `once` takes everything at once.
    assert Stream(TopicSource, options, PLACE).batch(EVERYTHING).num_rows == 100


def test_a_micro_batch_takes_no_more_bytes_than_it_may(send: Send, store: dict[str, str]) -> None:
    send("T", 40, body=bytes(100))
    options = {**store, "subscribe": "T", "startingOffsets": "earliest", "maxBytesPerTrigger": "1000"}
    tables = list(Stream(TopicSource, options, PLACE + ", storeSize int").available_now())
    assert sum(table.num_rows for table in tables) == 40
    assert all(sum(table["storeSize"].to_pylist()) <= 1000 for table in tables)
    small = {**options, "maxBytesPerTrigger": "1"}
    assert [table.num_rows for table in Stream(TopicSource, small, PLACE).available_now()] == [1] * 40


def test_available_now_ends_at_what_there_was(send: Send, store: dict[str, str]) -> None:
    send("T", 5)
    options = {**store, "subscribe": "T", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    stream = Stream(TopicSource, options, PLACE)
    runs = stream.available_now()
    assert next(runs).num_rows == 2
    send("T", 50)
    assert sum(table.num_rows for table in runs) == 3


def test_a_batch_that_is_run_again_is_the_same(send: Send, store: dict[str, str]) -> None:
    send("T", 5)
    stream = Stream(TopicSource, {**store, "subscribe": "T", "startingOffsets": "earliest"})
    start = stream.reader.initialOffset()
    end = stream.reader.latestOffset(start, EVERYTHING)
    first = stream.rows(start, end)
    send("T", 5)
    stream.start()
    assert stream.rows(start, end).equals(first)


def test_nothing_is_read_that_the_broker_has_not_confirmed(
    writer: MessageStore, send: Send, store: dict[str, str]
) -> None:
    send("T", 3)
    writer.append(make_message("T", b"written, not published", queue_id=0))
    stream = Stream(CommitLogSource, {**store, "startingOffsets": "earliest"}, PLACE)
    assert read_batch(TopicSource, {**store, "subscribe": "T"}, PLACE).num_rows == 3
    assert read_batch(CommitLogSource, store, PLACE).num_rows == 3
    assert stream.batch().num_rows == 3
    send("T", 1)
    assert places(stream.batch()) == queue("T", 0, 3, 5)


# Loss and damage


def lose_the_beginning(root: Path) -> int:
    """Remove the first segment, as retention does; returns the first message that is left."""
    (root / "commitlog" / f"{0:020d}").unlink()
    rows = read_batch(CommitLogSource, {"storePath": str(root)}, PLACE).to_pylist()
    return min(row["queueOffset"] for row in rows)


def test_messages_that_are_gone(writer: MessageStore, send: Send, store: dict[str, str], tmp_path: Path) -> None:
    send("T", 80)
    stream = Stream(TopicSource, {**store, "subscribe": "T"}, PLACE)
    stream.checkpoint = '{"T": {"b": {"0": 0}}}'
    writer.close()
    left = lose_the_beginning(tmp_path / "store")
    assert places(read_batch(TopicSource, {**store, "subscribe": "T"}, PLACE)) == queue("T", 0, left, 80)
    with pytest.raises(DataLoss, match=rf"now starts at {left}, offset 0 was requested.*failOnDataLoss=false"):
        stream.batch()
    going_on = Stream(TopicSource, {**store, "subscribe": "T", "failOnDataLoss": "false"}, PLACE)
    going_on.checkpoint = stream.checkpoint
    with pytest.warns(UserWarning, match="data was lost"):
        assert places(going_on.batch()) == queue("T", 0, left, 80)


def test_a_topic_that_is_gone(writer: MessageStore, send: Send, store: dict[str, str], tmp_path: Path) -> None:
    send("Ta", 3)
    send("Tb", 3)
    writer.flush_derived()  # the names of new queues are on the disk with this: nobody looks for them later
    stream = Stream(TopicSource, {**store, "subscribePattern": "T.", "startingOffsets": "earliest"}, PLACE)
    start = stream.reader.initialOffset()
    end = stream.reader.latestOffset(start, EVERYTHING)
    shutil.rmtree(tmp_path / "store/consumequeue/Tb")
    with pytest.raises(DataLoss, match="queue 0 of Tb at b was deleted"):
        stream.rows(start, end)
    # What was read of it already is not lost.
    assert stream.rows(end, stream.reader.latestOffset(end, EVERYTHING)).num_rows == 0


def test_a_damaged_record_is_no_message(
    writer: MessageStore, send: Send, store: dict[str, str], tmp_path: Path
) -> None:
    send("T", 5, body=bytes(100))
    (entry,) = read_batch(TopicSource, {**store, "assign": '{"T":[0]}'}, "commitLogOffset bigint").to_pylist()[2:3]
    writer.close()
    path = tmp_path / "store/commitlog" / f"{0:020d}"
    damaged = bytearray(path.read_bytes())
    damaged[entry["commitLogOffset"] + 100] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataLoss, match="message 2 of T, queue 0 at b: no intact record at physical offset"):
        read_batch(TopicSource, {**store, "subscribe": "T"}, PLACE)
    going_on = {**store, "subscribe": "T", "failOnDataLoss": "false"}
    assert places(read_batch(TopicSource, going_on, PLACE)) == [("T", 0, number) for number in (0, 1, 3, 4)]
    unchecked = {**store, "subscribe": "T", "checkCrc": "false"}
    assert places(read_batch(TopicSource, unchecked, PLACE)) == queue("T", 0, 0, 5)
    with pytest.raises(DataLoss, match="is damaged at physical offset"):
        read_batch(CommitLogSource, store, PLACE)


# The log as a stream


@pytest.mark.parametrize("bytes_max", ["1", "1000", "100000000"])
def test_the_log_as_a_stream(golden: GoldenStore, bytes_max: str) -> None:
    options = {"storePath": f"b={golden.store}", "startingOffsets": "earliest", "maxBytesPerTrigger": bytes_max}
    if bytes_max == "1":
        options["startingOffsets"] = f'{{"b":{golden.manifest["messages"][-30]["commitLogOffset"]}}}'
    stream = Stream(CommitLogSource, options, "commitLogOffset bigint")
    tables = list(stream.available_now())
    found = [number for table in tables for number in table["commitLogOffset"].to_pylist()]
    expected = [message["commitLogOffset"] for message in golden.manifest["messages"]]
    assert found == (expected[-30:] if bytes_max == "1" else expected)
    assert len(tables) == {"1": 30, "100000000": 1}.get(bytes_max, len(tables))
    assert stream.checkpoint == f'{{"b": {golden.manifest["endOfLastRecord"]}}}'


def test_a_start_inside_a_record_is_refused(golden: GoldenStore) -> None:
    options = {"storePath": f"b={golden.store}", "startingOffsets": '{"b":5}'}
    with pytest.raises(OptionError, match="no record of b starts at physical offset 5"):
        read_batch(CommitLogSource, options, PLACE)


# Filters


def filtered(options: dict[str, str], *asked: Any) -> list[tuple[str, int, int]]:
    return places(read_batch(TopicSource, options, PLACE + ", tags string", asked))


def test_filters_leave_out_what_need_not_be_read(send: Send, store: dict[str, str]) -> None:
    for topic in ("Ta", "Tb"):
        for queue_id in (0, 1):
            send(topic, 4, queue_id=queue_id, properties={"TAGS": f"tag{queue_id}"})
    options = {**store, "subscribePattern": "T."}
    assert filtered(options, filters.EqualTo(("topic",), "Tb"), filters.In(("queueId",), (1, 7))) == queue(
        "Tb", 1, 0, 4
    )
    near = [filters.GreaterThan(("queueOffset",), 1), filters.LessThanOrEqual(("queueOffset",), 2)]
    assert filtered(options, *near) == [(topic, number, 2) for topic in ("Ta", "Tb") for number in (0, 1)]
    assert filtered(options, filters.EqualTo(("tags",), "tag1")) == queue("Ta", 1, 0, 4) + queue("Tb", 1, 0, 4)
    late = filters.GreaterThanOrEqual(("storeTimestamp",), EPOCH + timedelta(seconds=2))
    assert filtered(options, late) == []
    assert filtered(options, filters.EqualTo(("topic",), "Ta"), filters.EqualTo(("topic",), "Tb")) == []


def test_spark_is_asked_again_about_what_is_not_fully_answered(send: Send, store: dict[str, str]) -> None:
    from tests.support.source_runs import struct

    send("T")
    reader = TopicSource({**store, "subscribe": "T"}).reader(struct(PLACE))
    exact = [filters.EqualTo(("topic",), "T"), filters.IsNotNull(("topic",)), filters.LessThan(("queueOffset",), 9)]
    rest = [
        filters.EqualTo(("tags",), "x"),
        filters.GreaterThan(("storeTimestamp",), EPOCH),
        filters.In(("queueOffset",), (1, 5)),
        filters.StringContains(("keys",), "k"),
        filters.Not(filters.EqualTo(("topic",), "T")),
        filters.EqualTo(("properties", "x"), "y"),
    ]
    assert reader.pushFilters([*exact, *rest]) == rest
    # Spark compares this to find out whether a reader may be used while pushdown is switched off.
    assert reader.pushFilters.__func__ is filters.DataSourceReader.pushFilters
