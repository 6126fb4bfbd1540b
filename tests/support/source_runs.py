"""Data sources driven as Spark drives them, in this process: plans and reads are those of the source, not of Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

KINDS: dict[str, T.DataType] = {
    "string": T.StringType(),
    "int": T.IntegerType(),
    "bigint": T.LongType(),
    "binary": T.BinaryType(),
    "timestamp": T.TimestampType(),
    "map<string,string>": T.MapType(T.StringType(), T.StringType()),
    "array<struct<key:string,value:binary>>": T.ArrayType(
        T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
    ),
}


def struct(text: str) -> T.StructType:
    """Read `name type, name type NOT NULL` without a JVM."""
    fields = []
    for part in text.replace(",string>", ";string>").replace(",value", ";value").split(", "):
        name, kind = part.strip().removesuffix(" NOT NULL").split(" ", 1)
        fields.append(T.StructField(name, KINDS[kind.replace(";", ",")], not part.endswith(" NOT NULL")))
    return T.StructType(fields)


def read_batch(
    source: type[DataSource], options: dict[str, str], columns: str | None = None, filters: Iterable[Any] = ()
) -> pa.Table:
    """Plan and read a batch; everything that travels to workers is pickled on the way."""
    made = source(options)
    schema = struct(columns or made.schema())
    reader = made.reader(schema)
    if filters:
        reader.pushFilters(list(filters))
    # Without any, Spark creates one.
    partitions = pickle.loads(pickle.dumps(reader.partitions())) or [InputPartition(None)]
    reader = pickle.loads(pickle.dumps(reader))
    return _table(schema, (batch for partition in partitions for batch in reader.read(partition)))


class Stream:
    """A streaming query with its checkpoint: the offset of the last batch, as JSON."""

    def __init__(self, source: type[DataSource], options: dict[str, str], columns: str | None = None) -> None:
        self._source, self._options, self._columns = source, options, columns
        self.checkpoint: str | None = None
        self.start()

    def start(self) -> None:
        """Start or start again: nothing but the checkpoint is kept."""
        made = self._source(self._options)
        self._schema = struct(self._columns or made.schema())
        self.reader = made.streamReader(self._schema)

    def batch(self, limit: ReadLimit | None = None) -> pa.Table:
        """Run one micro-batch with everything that there is, or with the source's own limit."""
        if self.checkpoint is None:
            self.checkpoint = json.dumps(self.reader.initialOffset())
        start = json.loads(self.checkpoint)
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        end = json.loads(json.dumps(self.reader.latestOffset(start, limit)))
        table = self.rows(start, end)
        self.checkpoint = json.dumps(end)
        return table

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        return _table(self._schema, (batch for partition in partitions for batch in self.reader.read(partition)))

    def available_now(self) -> Iterator[pa.Table]:
        """Run batches until nothing is new, as the trigger availableNow does."""
        self.reader.prepareForTriggerAvailableNow()
        while True:
            before = self.checkpoint
            table = self.batch()
            if self.checkpoint == before:
                return
            yield table


def _table(schema: T.StructType, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    from pyspark.sql.pandas.types import to_arrow_schema

    expected = to_arrow_schema(schema, timezone="UTC")
    found = list(batches)
    assert all(batch.schema.equals(expected) for batch in found), "Spark takes nothing but its own schema"
    return pa.Table.from_batches(found, schema=expected)


EVERYTHING = ReadAllAvailable()
