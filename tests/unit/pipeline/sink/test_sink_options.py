"""Options and columns of the sink: every contradiction has one sentence."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as T

from orbitlog.pipeline.sink.row_ids import RowIds, WriteIdentity
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_options import SinkOptions, parse_sink_options
from orbitlog.pipeline.sources.broker_stores import OptionError


def options(*, is_stream: bool = False, **more: str) -> SinkOptions:
    return parse_sink_options({"nameServer": "h:1", **more}, is_stream=is_stream)


def test_marks_of_a_stream_are_below_its_checkpoint() -> None:
    assert options(is_stream=True, checkpointLocation="/c/").mark_path == "/c/rocketmq-sink"
    assert options(is_stream=True, checkpointLocation="/c", markPath="/m").mark_path == "/m"
    assert options().mark_path is None
    assert options().write_id != options().write_id


WRONG = [
    ({"nameServer": ""}, "nameServer: '' contains no name server"),
    ({"topci": "T"}, "unknown option 'topci'; did you mean topic?"),
    ({"topic": "a b"}, "topic=a b is not a valid topic name"),
    ({"producerGroup": "a b"}, "producerGroup=a b is not a valid group name"),
    ({"path": "/x"}, "a topic has no path"),
    ({"writeId": "w"}, "writeId is given without markPath"),
    ({"batchRows": "1000000"}, "batchRows=1000000 is over the maximum of 100000"),
    ({"transactional": "yes"}, "transactional=yes is neither true nor false"),
    ({"storePath": "/s"}, "unknown option 'storePath'"),
]


@pytest.mark.parametrize(("more", "sentence"), WRONG, ids=[" ".join(more) for more, _ in WRONG])
def test_every_mistake_has_its_sentence(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        options(**more)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stream_options() -> None:
    with pytest.raises(OptionError, match="markPath is missing"):
        options(is_stream=True)
    with pytest.raises(OptionError, match="writeId is for batch writes"):
        options(is_stream=True, checkpointLocation="/c", writeId="w")
    with pytest.raises(OptionError, match="nameServer is missing"):
        parse_sink_options({"topic": "T"}, is_stream=False)


def columns(topic: str | None = "T", **kinds: T.DataType) -> SinkColumns:
    return SinkColumns(T.StructType([T.StructField(name, kind) for name, kind in kinds.items()]), topic)


@pytest.mark.parametrize(
    ("topic", "kinds", "sentence"),
    [
        ("T", {"keys": T.StringType()}, "column body is missing"),
        (None, {"body": T.StringType()}, "topic is missing; give option topic, or a column topic"),
        ("T", {"body": T.StringType(), "queueOffset": T.LongType()}, "unknown column 'queueOffset'"),
        ("T", {"body": T.IntegerType()}, "column body has type int, not binary or string"),
        ("T", {"body": T.StringType(), "value": T.StringType()}, "body and value have the same meaning"),
        ("T", {"body": T.StringType(), "brokerName": T.StringType()}, "brokerName is given without queueId"),
        (
            "T",
            {"body": T.StringType(), "queueId": T.IntegerType(), "shardingKey": T.StringType()},
            "queueId and shardingKey both choose the queue",
        ),
    ],
)
def test_columns_that_contradict(topic: str | None, kinds: dict[str, T.DataType], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        columns(topic, **kinds)


def test_ids_follow_from_content_and_not_from_order() -> None:
    identity = WriteIdentity("w", 1, 2)
    one, two = {"body": b"x", "properties": [("a", "1"), ("b", "2")]}, {"body": b"y", "properties": None}
    first, second = RowIds(identity), RowIds(identity)
    forward = [first.next("T", row) for row in (one, two, one)]
    swapped = {**one, "properties": [("b", "2"), ("a", "1")]}
    backward = [second.next("T", row) for row in (swapped, one, two)]
    assert sorted(forward) == sorted(backward)
    assert first.digest == second.digest
    assert len(set(forward)) == 3
    assert all(len(text) == 32 and text[20:28] == "00000000" for text in forward)
    assert RowIds(WriteIdentity("w", 2, 2)).next("T", one) not in forward
    assert RowIds(identity).next("Other", one) not in forward
