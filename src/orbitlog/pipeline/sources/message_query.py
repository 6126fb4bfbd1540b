"""Messages of stores as a DataFrame, narrowed down, and SQL over them as the view `messages`.

One topic is read through its queues, everything else from the log. Only columns that a query names are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orbitlog.pipeline.sources.message_columns import MESSAGE_COLUMNS
from orbitlog.pipeline.sources.named_stores import NamedStore, OptionError, log_path_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "messages"
_COUNT_ALL = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)
_CHEAPEST = "queueOffset"
# What the names of the command line mean in terms of columns (docs/reference/cli.md).
_JSON_FIELDS = (
    ("topic", "topic"),
    ("queueId", "queueId"),
    ("queueOffset", "queueOffset"),
    ("commitLogOffset", "commitLogOffset"),
    ("storeSize", "storeSize"),
    ("msgId", "msgId"),
    ("offsetMsgId", "offsetMsgId"),
    ("keys", "keys"),
    ("tags", "tags"),
    ("properties", "properties"),
    ("bodyCRC", "bodyCRC"),
    ("bodySha256", "sha2(body, 256)"),
    ("bodyLength", "length(body)"),
    ("sysFlag", "sysFlag"),
    ("flag", "flag"),
    ("bornTimestamp", "unix_millis(bornTimestamp)"),
    ("storeTimestamp", "unix_millis(storeTimestamp)"),
    ("bornHost", "bornHost"),
    ("storeHost", "storeHost"),
    ("reconsumeTimes", "reconsumeTimes"),
    ("preparedTransactionOffset", "preparedTransactionOffset"),
)


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages are wanted; None lets everything pass. Times are milliseconds, the end is left out."""

    topic: str | None = None
    key: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    contains: str | None = None


def messages_frame(
    spark: SparkSession,
    stores: Sequence[NamedStore],
    wanted: MessageFilter | None = None,
    columns: Sequence[str] | None = None,
) -> DataFrame:
    """Return the messages of stores with the chosen columns (None: all that there are)."""
    from pyspark.sql import functions as F

    from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
    from orbitlog.pipeline.sources.topic_source import TopicSource

    wanted = wanted or MessageFilter()
    chosen = list(MESSAGE_COLUMNS) if columns is None else list(columns)
    needed = list(dict.fromkeys((*chosen, *_asked_columns(wanted))))
    schema = ", ".join(f"{name} {MESSAGE_COLUMNS[name].kind}" for name in needed)
    paths = ",".join(f"{store.broker_name}={store.root}" for store in stores)
    reader = spark.read.format((CommitLogSource if wanted.topic is None else TopicSource).name())
    reader = reader.schema(schema).option("storePath", paths).options(**log_path_options(stores))
    frame = (reader if wanted.topic is None else reader.option("subscribe", wanted.topic)).load()
    if wanted.from_ms is not None:
        frame = frame.where(F.col("storeTimestamp") >= F.lit(_instant(wanted.from_ms)))
    if wanted.to_ms is not None:
        frame = frame.where(F.col("storeTimestamp") < F.lit(_instant(wanted.to_ms)))
    if wanted.key is not None:
        in_keys = F.array_contains(F.split("keys", " "), wanted.key)
        frame = frame.where(F.coalesce(in_keys, F.lit(False)) | (F.col("uniqKey") == wanted.key))
    if wanted.contains is not None:
        frame = frame.where(F.contains("body", F.lit(bytearray(wanted.contains.encode()))))
    return frame.select(*chosen)


def _asked_columns(wanted: MessageFilter) -> list[str]:
    """Return the columns that the filter looks at."""
    asked: list[str] = []
    if wanted.from_ms is not None or wanted.to_ms is not None:
        asked.append("storeTimestamp")
    if wanted.key is not None:
        asked += ["keys", "uniqKey"]
    if wanted.contains is not None:
        asked.append("body")
    return asked


def _instant(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise OptionError(f"{milliseconds} ms is no time that a calendar has") from None


def query_sql(
    spark: SparkSession, stores: Sequence[NamedStore], sql: str, wanted: MessageFilter | None = None
) -> DataFrame:
    """Run SQL over the view `messages`."""
    messages_frame(spark, stores, wanted, columns_named(sql)).createOrReplaceTempView(VIEW)
    return spark.sql(sql)


def columns_named(sql: str) -> list[str]:
    """Return the columns that a query may use: those whose names stand in it, all of them where it says `*`.

    A data source is not told which columns are used, and decoding those that are not costs most of the time.
    """
    text = _COUNT_ALL.sub("count(1)", sql)
    words = {word.lower() for word in re.findall(r"\w+", text)}
    has_star = "*" in text
    named = [
        name for name, column in MESSAGE_COLUMNS.items() if name.lower() in words or (has_star and column.by_default)
    ]
    return named or [_CHEAPEST]


def as_json_rows(frame: DataFrame) -> DataFrame:
    """Return messages under the names of the command line: times in milliseconds, bodies as length and hash."""
    return frame.selectExpr(*(f"{expression} AS `{name}`" for name, expression in _JSON_FIELDS))
