"""Sink columns: checks the schema of a DataFrame.

Planning imports this module in new processes, so it loads neither kernels nor Arrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.name_hints import name_hint

if TYPE_CHECKING:
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


class SinkColumns:
    """The columns of a DataFrame, checked: `names` are those of the DataFrame, by the sink's own names."""

    def __init__(self, schema: StructType, topic: str | None) -> None:
        self.topic = topic
        self.names: dict[str, str] = {}
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
            if name in self.names:
                raise OptionError(f"columns {self.names[name]} and {field.name} have the same meaning; select one")
            self.names[name] = field.name
        self._check()

    def _check(self) -> None:
        if "body" not in self.names:
            raise OptionError("column body is missing; give the content of the messages as binary or string")
        if self.topic is None and "topic" not in self.names:
            raise OptionError("topic is missing; give option topic, or a column topic")
        if "brokerName" in self.names and "queueId" not in self.names:
            raise OptionError("column brokerName is given without queueId; give both, or neither")
        if "queueId" in self.names and "shardingKey" in self.names:
            raise OptionError("columns queueId and shardingKey both choose the queue; select one")
