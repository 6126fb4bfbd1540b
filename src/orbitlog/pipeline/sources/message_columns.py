"""Message columns: their Spark types, the fields that kernels decode for them, and how each is built.

`MESSAGE_COLUMNS` is the only table. A user may select any subset with `.schema("topic string, body binary")`; only
fields that those columns need are decoded. Columns that every message has may be declared `NOT NULL`, which saves
Spark the null checks. `KAFKA_COLUMNS` has the names of Spark's Kafka source.
"""

from __future__ import annotations

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
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.name_hints import name_hint

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LOG_APPEND_TIME = 1  # Kafka's timestampType
_TIMESTAMP = pa.timestamp("us", tz="UTC")


class BodyError(OrbitlogError):
    """A body is flagged as compressed, and inflating it failed."""


class Rows:
    """A decoded batch, with methods that build the columns of Spark's rows."""

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
        """Return a column of milliseconds as Spark's timestamps, which are microseconds."""
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
            physical_offset = self.column("physical_offset")[row].as_py()
            raise BodyError(
                f"inflating the body of the message at physical offset {physical_offset} of {self.broker_name} failed"
                f" ({error.problem}); option inflate=false reads it as it is stored"
            ) from error

    def host(self, name: str) -> pa.Array:
        return self.host_codes(name).dictionary_decode()

    def host_codes(self, name: str) -> pa.DictionaryArray:
        """Return hosts as a dictionary array: few hosts send many messages, so each is formatted once."""
        raw = self.column(name)
        if _is_one_value(raw):
            return constant_codes(str(decode_host(raw[0].as_py())), len(raw))
        encoded = pc.dictionary_encode(raw)
        texts = pa.array([str(decode_host(host)) for host in encoded.dictionary.to_pylist()], pa.string())
        return pa.DictionaryArray.from_arrays(encoded.indices, texts)

    def offset_id(self) -> pa.Array:
        """Return offset message ids: the store host's bytes and the physical offset of the record."""
        hosts, offsets = self.column("store_host_raw").to_pylist(), self.column("physical_offset").to_pylist()
        texts = [str(OffsetMessageId(decode_host(raw), offset)) for raw, offset in zip(hosts, offsets, strict=True)]
        return pa.array(texts, pa.string())

    def message_id(self) -> pa.Array:
        unique = self.column("unique_key")
        return unique if unique.null_count == 0 else pc.coalesce(unique, self.offset_id())

    def headers(self) -> pa.Array:
        maps = self.column("properties")
        values = pa.StructArray.from_arrays([maps.keys, maps.items.cast(pa.binary())], ["key", "value"])
        return pa.ListArray.from_arrays(maps.offsets, values)


def constant_codes(value: str, count: int) -> pa.DictionaryArray:
    """Return a dictionary array with the same text in each row."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value], pa.string()))


def _is_one_value(raw: pa.Array) -> bool:
    """Return whether all rows of a binary column are equal; a comparison costs far less than hashing them."""
    if not len(raw) or raw.null_count:
        return False
    ends = np.frombuffer(raw.buffers()[1], np.int32)[raw.offset : raw.offset + len(raw) + 1]
    size_bytes = int(ends[1] - ends[0])
    if not size_bytes or not (np.diff(ends) == size_bytes).all():
        return False
    data = np.frombuffer(raw.buffers()[2], np.uint8)[ends[0] : ends[-1]]
    return bool((data[size_bytes:] == data[:-size_bytes]).all())  # each row equals its predecessor


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """A column: its Spark type, the fields that kernels must decode for it, and the function that builds it."""

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
    "uniqKey, or the offset message id without it",
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
    "reconsumeTimes": _plain("int", "reconsume_times", "how often it was sent back for a retry"),
    "commitLogOffset": _plain("bigint", "physical_offset", "physical offset of its record"),
    "storeSize": _plain("int", "size_bytes", "bytes of its record"),
    "msgId": _MESSAGE_ID,
    "offsetMsgId": MessageColumn(
        "string",
        ("store_host_raw", "physical_offset"),
        Rows.offset_id,
        "message id with store host and physical offset",
        by_default=False,
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
    """Return the default schema of a source as DDL text."""
    columns = KAFKA_COLUMNS if is_kafka else MESSAGE_COLUMNS
    excluded = frozenset() if include_properties else frozenset(("properties", "headers"))
    return ", ".join(
        f"{name} {column.kind}" for name, column in columns.items() if column.by_default and name not in excluded
    )


class RowMaker:
    """Builds record batches with exactly the Arrow types that Spark expects for a schema."""

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
        """Build the user's columns from a decoded batch."""
        rows = Rows(batch, broker_name, inflate=self._inflate)
        arrays: list[Any] = []
        for column, field in zip(self._columns, self._arrow_schema, strict=True):
            array = column.make(rows)
            arrays.append(array if array.type.equals(field.type) else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._arrow_schema)


def _checked(name: str, kind: str, table: Mapping[str, MessageColumn], *, is_nullable: bool) -> MessageColumn:
    by_lower = {column_name.lower(): column_name for column_name in table}
    if name.lower() not in by_lower:
        hint = name_hint(name, by_lower, f"available: {', '.join(table)}")
        raise OptionError(f"unknown column {name!r}; {hint}")
    column = table[by_lower[name.lower()]]
    if kind != column.kind:
        raise OptionError(f"column {name} has type {column.kind}, not {kind}; cast it with .select() or .withColumn()")
    if column.may_be_null and not is_nullable:
        # Spark relies on NOT NULL and would read a null as a value.
        raise OptionError(f"column {name} is nullable: not every message has that property; remove NOT NULL")
    return column


def columns_needed(needs: Sequence[str], always: Sequence[str]) -> list[str]:
    """Return the fields that kernels decode: those that columns need, and those that every row is checked by."""
    return list(dict.fromkeys((*needs, *always)))
