"""Messages as rows: the columns that Spark sees, their types, and how each is made from what the kernels decode.

`MESSAGE_COLUMNS` is the one table. A user may ask for any subset with `.schema("topic string, body binary")`; only
what those columns need is decoded. `NOT NULL` may be said of those that every message has, and Spark asks for no nulls.
`KAFKA_COLUMNS` has the names of Spark's Kafka source.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitlog.errors import FormatError, OrbitlogError
from orbitlog.formats.hosts import decode_host
from orbitlog.formats.records import flags
from orbitlog.formats.records.compression import inflate_body
from orbitlog.formats.records.message_id import OffsetMessageId
from orbitlog.pipeline.sources.named_stores import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LOG_APPEND_TIME = 1  # of Kafka's timestampType
_TIMESTAMP = pa.timestamp("us", tz="UTC")


class BodyError(OrbitlogError):
    """A body says that it is compressed and cannot be inflated."""


class Rows:
    """Decoded rows in the making; columns that several others need are made once."""

    def __init__(self, batch: pa.RecordBatch, broker_name: str, *, inflate: bool) -> None:
        self.batch = batch
        self.broker_name = broker_name
        self._inflate = inflate

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        return self.batch.column(name)

    def repeated(self, value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(self))

    def timestamp(self, name: str) -> pa.Array:
        """Milliseconds as what Spark takes: microseconds."""
        milliseconds = self.column(name).to_numpy(zero_copy_only=True)
        return pa.array(milliseconds * 1000).view(_TIMESTAMP)

    def body(self) -> pa.Array:
        stored = self.column("body")
        if not self._inflate:
            return stored
        sys_flag = self.column("sys_flag").to_numpy(zero_copy_only=True)
        compressed = np.flatnonzero(sys_flag & flags.COMPRESSED)
        if not len(compressed):
            return stored
        bodies = stored.to_pylist()
        for row in compressed.tolist():
            bodies[row] = self._inflated(row, bodies[row], int(sys_flag[row]))
        return pa.array(bodies, pa.binary())

    def _inflated(self, row: int, body: bytes, sys_flag: int) -> bytes:
        try:
            return inflate_body(body, sys_flag)
        except FormatError as error:
            place = self.column("physical_offset")[row].as_py()
            raise BodyError(
                f"the body of the message at physical offset {place} of {self.broker_name} cannot be inflated"
                f" ({error.problem}); option inflate=false reads it as it is stored"
            ) from error

    def host(self, name: str) -> pa.Array:
        return self.host_codes(name).dictionary_decode()

    def host_codes(self, name: str) -> pa.DictionaryArray:
        """Few hosts send many messages: each is written as text once."""
        raw = self.column(name)
        if _is_one_value(raw):
            return one_code(str(decode_host(raw[0].as_py())), len(raw))
        encoded = pc.dictionary_encode(raw)
        texts = pa.array([str(decode_host(one)) for one in encoded.dictionary.to_pylist()], pa.string())
        return pa.DictionaryArray.from_arrays(encoded.indices, texts)

    def offset_id(self) -> pa.Array:
        """The id that names the place of a record: the store host's bytes and the physical offset."""
        hosts, places = self.column("store_host_raw").to_pylist(), self.column("physical_offset").to_pylist()
        texts = [str(OffsetMessageId(decode_host(raw), place)) for raw, place in zip(hosts, places, strict=True)]
        return pa.array(texts, pa.string())

    def message_id(self) -> pa.Array:
        unique = self.column("unique_key")
        return unique if unique.null_count == 0 else pc.coalesce(unique, self.offset_id())

    def headers(self) -> pa.Array:
        maps = self.column("properties")
        values = pa.StructArray.from_arrays([maps.keys, maps.items.cast(pa.binary())], ["key", "value"])
        return pa.ListArray.from_arrays(maps.offsets, values)


def one_code(value: str, count: int) -> pa.DictionaryArray:
    """Return a column that has the same text in each row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))


def _is_one_value(raw: pa.Array) -> bool:
    """Tell whether all rows of a binary column are the same bytes; a comparison costs far less than hashes do."""
    if not len(raw) or raw.null_count:
        return False
    ends = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + len(raw) + 1]
    size_bytes = int(ends[1] - ends[0])
    if not size_bytes or not (np.diff(ends) == size_bytes).all():
        return False
    data = np.frombuffer(raw.buffers()[2], np.uint8)[ends[0] : ends[-1]]
    return bool((data[size_bytes:] == data[:-size_bytes]).all())  # each row is the one before it


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """A column: its type in Spark's words, what the kernels must decode for it, and how it is made."""

    kind: str
    needs: tuple[str, ...]
    make: Callable[[Rows], pa.Array]
    meaning: str
    by_default: bool = True
    may_be_null: bool = False


def _plain(kind: str, name: str, meaning: str, *, by_default: bool = True, may_be_null: bool = False) -> MessageColumn:
    return MessageColumn(kind, (name,), lambda rows: rows.column(name), meaning, by_default, may_be_null)


_BROKER = MessageColumn(
    "string", (), lambda rows: rows.repeated(rows.broker_name, pa.string()), "the store's name, as storePath gives it"
)
_BODY = MessageColumn(
    "binary", ("body", "sys_flag", "physical_offset"), Rows.body, "the body, inflated unless inflate=false"
)
_STORE_TIME = MessageColumn(
    "timestamp",
    ("store_timestamp_ms",),
    lambda rows: rows.timestamp("store_timestamp_ms"),
    "the broker's clock when it was stored",
)
_MESSAGE_ID = MessageColumn(
    "string",
    ("unique_key", "store_host_raw", "physical_offset"),
    Rows.message_id,
    "the id that producers are given: uniqKey, or the offset id where there is none",
)

MESSAGE_COLUMNS: Mapping[str, MessageColumn] = {
    "topic": _plain("string", "topic", "topic"),
    "queueId": _plain("int", "queue_id", "queue within the topic"),
    "queueOffset": _plain("bigint", "queue_offset", "number of the message in its queue"),
    "brokerName": _BROKER,
    "body": _BODY,
    "tags": _plain("string", "tags", "property TAGS", may_be_null=True),
    "keys": _plain("string", "keys", "property KEYS", may_be_null=True),
    "uniqKey": _plain("string", "unique_key", "property UNIQ_KEY", may_be_null=True),
    "properties": _plain("map<string,string>", "properties", "all properties (includeProperties=false leaves it out)"),
    "flag": _plain("int", "flag", "the application's own flag"),
    "sysFlag": _plain("int", "sys_flag", "compression, transaction state, address sizes"),
    "bornTimestamp": MessageColumn(
        "timestamp",
        ("born_timestamp_ms",),
        lambda rows: rows.timestamp("born_timestamp_ms"),
        "the producer's clock when it was sent",
    ),
    "storeTimestamp": _STORE_TIME,
    "bornHost": MessageColumn("string", ("born_host_raw",), lambda rows: rows.host("born_host_raw"), "the producer"),
    "storeHost": MessageColumn("string", ("store_host_raw",), lambda rows: rows.host("store_host_raw"), "the broker"),
    "reconsumeTimes": _plain("int", "reconsume_times", "how often it was sent back for another try"),
    "commitLogOffset": _plain("bigint", "physical_offset", "where its record starts in the log"),
    "storeSize": _plain("int", "size_bytes", "bytes of its record"),
    "msgId": _MESSAGE_ID,
    "offsetMsgId": MessageColumn(
        "string", ("store_host_raw", "physical_offset"), Rows.offset_id, "the id that names its place", by_default=False
    ),
    "bodyCRC": _plain("int", "body_crc", "CRC-32 of the stored body", by_default=False),
    "preparedTransactionOffset": _plain(
        "bigint", "prepared_transaction_offset", "physical offset of its half message", by_default=False
    ),
}
KAFKA_COLUMNS: Mapping[str, MessageColumn] = {
    "key": MessageColumn(
        "binary", ("keys",), lambda rows: rows.column("keys").cast(pa.binary()), "property KEYS", may_be_null=True
    ),
    "value": _BODY,
    "topic": MESSAGE_COLUMNS["topic"],
    "partition": _plain("int", "queue_id", "queue within the topic"),
    "offset": _plain("bigint", "queue_offset", "number of the message in its queue"),
    "timestamp": _STORE_TIME,
    "timestampType": MessageColumn(
        "int", (), lambda rows: rows.repeated(_LOG_APPEND_TIME, pa.int32()), "always 1: the broker's clock"
    ),
    "headers": MessageColumn(
        "array<struct<key:string,value:binary>>", ("properties",), Rows.headers, "all properties (includeHeaders=true)"
    ),
}


def schema_text(*, is_kafka: bool, include_properties: bool) -> str:
    """Return the schema that a source has unless the user gives one."""
    columns = KAFKA_COLUMNS if is_kafka else MESSAGE_COLUMNS
    left_out = frozenset() if include_properties else frozenset(("properties", "headers"))
    return ", ".join(
        f"{name} {column.kind}" for name, column in columns.items() if column.by_default and name not in left_out
    )


class RowMaker:
    """Makes the record batches of one schema, column by column, exactly as Spark expects them."""

    def __init__(self, schema: StructType, *, is_kafka: bool = False, inflate: bool = True) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        table = KAFKA_COLUMNS if is_kafka else MESSAGE_COLUMNS
        self._columns = [
            _checked(field.name, field.dataType.simpleString(), table, is_nullable=field.nullable)
            for field in schema.fields
        ]
        self._arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self._inflate = inflate
        self.needs: tuple[str, ...] = tuple(dict.fromkeys(need for column in self._columns for need in column.needs))

    def make(self, batch: pa.RecordBatch, broker_name: str) -> pa.RecordBatch:
        """Turn decoded columns into the user's."""
        rows = Rows(batch, broker_name, inflate=self._inflate)
        arrays: list[Any] = []
        for column, field in zip(self._columns, self._arrow_schema, strict=True):
            made = column.make(rows)
            arrays.append(made if made.type.equals(field.type) else made.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)


def _checked(name: str, kind: str, table: Mapping[str, MessageColumn], *, is_nullable: bool) -> MessageColumn:
    by_lower = {known.lower(): known for known in table}
    if name.lower() not in by_lower:
        near = difflib.get_close_matches(name.lower(), by_lower, n=1)
        hint = f"did you mean {by_lower[near[0]]}?" if near else f"there are {', '.join(table)}"
        raise OptionError(f"there is no column {name!r}; {hint}")
    column = table[by_lower[name.lower()]]
    if kind != column.kind:
        raise OptionError(f"column {name} has type {column.kind}, not {kind}; cast it with .select() or .withColumn()")
    if column.may_be_null and not is_nullable:
        # Spark would believe it, and never look whether there is a value.
        raise OptionError(f"column {name} may be null, so it cannot be NOT NULL; not every message has that property")
    return column


def columns_needed(needs: Sequence[str], always: Sequence[str]) -> list[str]:
    """Return what the kernels decode: what rows are made of, and what every row is checked by."""
    return list(dict.fromkeys((*needs, *always)))
