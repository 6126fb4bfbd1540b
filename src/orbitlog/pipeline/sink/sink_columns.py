"""Sink columns: checks the schema of a DataFrame and turns its rows into messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orbitlog.client.producer.outgoing import OutgoingMessage, make_outgoing
from orbitlog.errors import ClientError
from orbitlog.formats.records import properties as props
from orbitlog.pipeline.sink.row_ids import RowIds
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.name_hints import name_hint

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_TEXT_OR_BYTES, _NUMBERS = ("binary", "string"), ("tinyint", "smallint", "int", "bigint")
SINK_COLUMNS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "body": (_TEXT_OR_BYTES, "the body; required"),
    "topic": (("string",), "topic, if option topic is not given"),
    "tags": (("string",), "the tag"),
    "keys": (("string", "array<string>"), "keys, separated by spaces or as an array"),
    "properties": (("map<string,string>",), "user properties; those that clients and brokers set are left out"),
    "queueId": (_NUMBERS, "queue to send to; all rows of a queue keep their order"),
    "brokerName": (("string",), "broker of that queue; required if several brokers serve the topic"),
    "shardingKey": (("string",), "rows with the same key go to the same queue and keep their order"),
    "delayLevel": (_NUMBERS, "deliver after the delay of this level, 1 to 18"),
    "delaySeconds": ((*_NUMBERS, "float", "double"), "deliver after this many seconds"),
    "deliverTimestamp": (("timestamp",), "deliver at this time"),
    "flag": (_NUMBERS, "the application's own flag"),
}
# Columns with this prefix are not sent; they are copied into the tables of sent and failed rows.
SIDE_PREFIX = "_"
_KAFKA_NAMES = {"value": "body", "key": "keys", "partition": "queueId"}
# Set by clients and brokers: a copy of them would be wrong for the new message, or is given by another column.
_NOT_COPIED = frozenset(
    (
        *(props.KEYS, props.TAGS, props.WAIT, props.DELAY, props.UNIQ_KEY, props.CLUSTER, props.REAL_TOPIC),
        *(props.REAL_QUEUE_ID, props.RETRY_TOPIC, props.TRANSACTION_PREPARED, props.PRODUCER_GROUP, props.MSG_REGION),
        *(props.TRACE_ON, props.TRANSACTION_ID, props.INNER_MULTI_DISPATCH, props.INNER_MULTI_QUEUE_OFFSET),
        *(props.INNER_NUM, props.INNER_BASE, props.CRC32, "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"),
        *("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME"),
    )
)


@dataclass(frozen=True, slots=True)
class SinkRow:
    """A message to send and the queue it must go to, if that is given."""

    message: OutgoingMessage
    queue_id: int | None
    broker_name: str | None
    sharding_key: str | None
    batch: Any
    """The record batch of the row, and its position there, for the table of failed rows."""
    index: int

    @property
    def is_batchable(self) -> bool:
        """Return whether it may share a request with others: scheduled messages may not."""
        names = self.message.properties
        return props.DELAY not in names and "TIMER_DELIVER_MS" not in names


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that no broker would accept, and why."""

    batch: Any
    index: int
    why: str


class SinkColumns:
    """The columns of a DataFrame, checked, and the conversion of its batches."""

    def __init__(self, schema: StructType, topic: str | None) -> None:
        self._topic = topic
        self._names: dict[str, str] = {}
        by_lower = {name.lower(): name for name in SINK_COLUMNS} | _KAFKA_NAMES
        for field in schema.fields:
            if field.name.startswith(SIDE_PREFIX):
                continue
            name = by_lower.get(field.name.lower())
            if name is None:
                hint = name_hint(field.name, by_lower, f"the sink takes {', '.join(SINK_COLUMNS)}")
                raise OptionError(f"unknown column {field.name!r}; {hint}; choose columns with .select()")
            kind = field.dataType.simpleString()
            if kind not in SINK_COLUMNS[name][0] and not (name == "keys" and kind == "binary"):
                kinds = " or ".join(SINK_COLUMNS[name][0])
                raise OptionError(f"column {field.name} has type {kind}, not {kinds}; cast it with .withColumn()")
            if name in self._names:
                raise OptionError(f"columns {self._names[name]} and {field.name} have the same meaning; select one")
            self._names[name] = field.name
        self._check()

    def _check(self) -> None:
        if "body" not in self._names:
            raise OptionError("column body is missing; give the content of the messages as binary or string")
        if self._topic is None and "topic" not in self._names:
            raise OptionError("topic is missing; give option topic, or a column topic")
        if "brokerName" in self._names and "queueId" not in self._names:
            raise OptionError("column brokerName is given without queueId; give both, or neither")
        if "queueId" in self._names and "shardingKey" in self._names:
            raise OptionError("columns queueId and shardingKey both choose the queue; select one")

    def rows(self, batch: pa.RecordBatch, ids: RowIds) -> Iterator[SinkRow | FailedRow]:
        """Yield each row as a message with a deterministic id, or the reason why it is invalid."""
        values = {name: batch.column(given).to_pylist() for name, given in self._names.items()}
        names = tuple(values)
        for index, row in enumerate(zip(*values.values(), strict=True)):
            fields = dict(zip(names, row, strict=True))
            try:
                yield self._row(batch, index, fields, ids)
            except ClientError as error:
                yield FailedRow(batch, index, str(error))

    def _row(self, batch: pa.RecordBatch, index: int, fields: dict[str, Any], ids: RowIds) -> SinkRow:
        topic = self._topic if self._topic is not None else fields.get("topic")
        if topic is None:
            raise ClientError("column topic is null")
        if fields["body"] is None:
            raise ClientError("column body is null")
        keys = fields.get("keys") or ()
        copied = {name: value for name, value in fields.get("properties") or () if name not in _NOT_COPIED}
        if any(value is None for value in copied.values()):
            raise ClientError("column properties has a null value")
        message = make_outgoing(
            topic,
            fields["body"],
            ids.next(topic, fields),
            tags=fields.get("tags"),
            keys=keys.decode(errors="replace") if isinstance(keys, bytes) else keys,
            user_properties=copied,
            delay=fields.get("delaySeconds"),
            deliver_at=_aware(fields.get("deliverTimestamp")),
            delay_level=fields.get("delayLevel"),
            ordered_by=fields.get("shardingKey"),
            flag=fields.get("flag") or 0,
        )
        queue = fields.get("queueId"), fields.get("brokerName"), fields.get("shardingKey")
        return SinkRow(message, *queue, batch, index)


def _aware(instant: datetime | None) -> datetime | None:
    return instant if instant is None or instant.tzinfo is not None else instant.replace(tzinfo=UTC)
