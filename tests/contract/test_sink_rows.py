"""The sink's kernels give rows the ids, members and digest that plain Python gives them a row at a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from orbitlog.pipeline.sink.encoded_rows import RequestRows, SinkRow
from orbitlog.pipeline.sink.row_encoding import RowEncoder
from orbitlog.pipeline.sink.row_ids import RowIds
from orbitlog.pipeline.sink.sink_columns import SinkColumns
from orbitlog.pipeline.sink.write_identity import WriteIdentity
from tests.support.row_at_a_time import ReferenceRows

TEXT, STRINGS = T.StringType(), T.ArrayType(T.StringType())
# Of each column: its type in Spark and in Arrow, and values.
plain = st.text('abc -|{}"', max_size=30)
text = st.one_of(
    plain, st.sampled_from(["a||b", "it's", "back\\slash", "имя", "\x01", "\x02", "\n", "é" * 20_000, "a b"])
)
instants = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)).map(lambda value: value.replace(tzinfo=UTC))
COLUMNS: dict[str, tuple[T.DataType, pa.DataType, st.SearchStrategy[Any]]] = {
    "tags": (TEXT, pa.string(), st.none() | text),
    "keys": (TEXT, pa.string(), st.none() | text),
    "properties": (
        T.MapType(TEXT, TEXT),
        pa.map_(pa.string(), pa.string()),
        st.none()
        | st.lists(
            st.tuples(st.sampled_from(["a", "UNIQ_KEY", "имя"]), st.none() | text),
            max_size=3,
            unique_by=lambda item: item[0],
        ),
    ),
    "shardingKey": (TEXT, pa.string(), st.none() | text),
    "flag": (T.IntegerType(), pa.int32(), st.none() | st.integers(-(2**31), 2**31 - 1)),
    "delayLevel": (T.IntegerType(), pa.int32(), st.none() | st.integers(0, 19)),
    "deliverTimestamp": (T.TimestampType(), pa.timestamp("us", "UTC"), st.none() | instants),
    "topic": (TEXT, pa.string(), st.sampled_from([None, "Orders", "Other", "a b"])),
}
BODIES: list[tuple[T.DataType, pa.DataType, st.SearchStrategy[Any]]] = [
    (T.BinaryType(), pa.binary(), st.none() | st.binary(max_size=300)),
    (TEXT, pa.string(), st.none() | plain),
    (TEXT, pa.string(), st.none() | text),
    (TEXT, pa.large_string(), st.none() | plain),
]


@st.composite
def frames(draw: st.DrawFn) -> tuple[T.StructType, pa.RecordBatch, str | None]:
    """A batch with some of the columns, and the topic option."""
    names = draw(st.lists(st.sampled_from(list(COLUMNS)), unique=True, max_size=4))
    chosen = {"body": draw(st.sampled_from(BODIES)), **{name: COLUMNS[name] for name in names}}
    rows = draw(st.integers(0, 8))
    arrays = {
        name: pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)
        for name, (_, kind, values) in chosen.items()
    }
    schema = T.StructType([T.StructField(name, kind) for name, (kind, _, _) in chosen.items()])
    topic = None if "topic" in names and draw(st.booleans()) else "Orders"
    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    return schema, batch.slice(draw(st.integers(0, 2))), topic


@given(frames(), st.sampled_from(["w", "long " * 60]))
def test_encoded_rows_equal_the_reference(frame: tuple[T.StructType, pa.RecordBatch, str | None], write: str) -> None:
    schema, batch, topic = frame
    identity = WriteIdentity(write, 7, 3)
    reference, ids = ReferenceRows(identity), RowIds(identity)
    encoder = RowEncoder(SinkColumns(schema, topic), ids)
    encoded = []
    for _ in range(2):  # the second time each row equals an earlier one
        reference.add(topic, batch.to_pylist())
        encoded += list(encoder.steps(batch))
    rows = [SinkRow(run.rows, index) for step in encoded for run in step.runs() for index in range(run.start, run.stop)]
    assert [row.unique_id for row in rows] == reference.ids
    assert b"".join(RequestRows([run for step in encoded for run in step.runs()]).members()) == b"".join(
        reference.members
    )
    assert [failed.index for step in encoded for failed in step.failed] == reference.invalid
    assert ids.digest == reference.digest


def test_rows_in_many_steps_equal_the_reference() -> None:
    """Long bodies and many rows: steps end by size and by number, and the table of equal rows grows."""
    bodies = [b"%d" % (number % 9000) for number in range(12_000)] + [b"x" * (1 << 20)] * 7 + [b"y" * 1_000_000]
    identity = WriteIdentity("w", 1, 0)
    reference, ids = ReferenceRows(identity), RowIds(identity)
    batch = pa.RecordBatch.from_pydict({"body": bodies})
    columns = SinkColumns(T.StructType([T.StructField("body", T.BinaryType())]), "T")
    reference.add("T", batch.to_pylist())
    encoded = list(RowEncoder(columns, ids).steps(batch))
    assert len(encoded) > 12
    assert b"".join(bytes(step.members) for step in encoded) == b"".join(reference.members)
    assert ids.digest == reference.digest
