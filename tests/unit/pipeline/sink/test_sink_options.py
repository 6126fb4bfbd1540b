"""Options and columns of the sink: every contradiction has one sentence."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql import types as T

from orbitlog.pipeline.sink.encoded_rows import RequestRows
from orbitlog.pipeline.sink.row_encoding import RowEncoder
from orbitlog.pipeline.sink.row_ids import RowIds
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.sink_options import SinkOptions, parse_sink_options
from orbitlog.pipeline.sink.write_identity import WriteIdentity
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


def ids_of(ids: RowIds, rows: list[dict[str, Any]]) -> list[str]:
    kinds = {"body": pa.binary(), "properties": pa.map_(pa.string(), pa.string())}
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(kinds.items())))
    encoder = RowEncoder(columns(body=T.BinaryType(), properties=T.MapType(T.StringType(), T.StringType())), ids)
    return [row.unique_id for step in encoder.steps(batch) for row in RequestRows(list(step.runs()))]


def test_ids_follow_from_content_and_not_from_order() -> None:
    identity = WriteIdentity("w", 1, 2)
    one, two = {"body": b"x", "properties": [("a", "1"), ("b", "2")]}, {"body": b"y", "properties": None}
    first, second = RowIds(identity), RowIds(identity)
    forward = ids_of(first, [one, two, one])
    swapped = {**one, "properties": [("b", "2"), ("a", "1")]}
    backward = ids_of(second, [swapped, one, two])
    assert sorted(forward) == sorted(backward)
    assert first.digest == second.digest
    assert len(set(forward)) == 3
    assert all(len(text) == 32 and text[20:28] == "00000000" for text in forward)
    assert ids_of(RowIds(WriteIdentity("w", 2, 2)), [one])[0] not in forward


def test_ids_and_members_are_those_of_earlier_versions() -> None:
    ids = RowIds(WriteIdentity("write", 3, 1))
    rows = [{"body": b"one", "properties": [("a", "1")]}, {"body": b"one", "properties": [("a", "1")]}]
    assert ids_of(ids, rows) == [
        "48352CAA0D1AD47C96E900000000560B",
        "887D0E0741FAA5479B8C000000006381",
    ]
    assert ids.digest == "2:d0b23ab14f1579c3"
