"""Message queries: filtered messages of stores as a DataFrame, and SQL over them as the view `messages`.

A query for one topic reads its ConsumeQueues, any other query the log. Only columns that a query names are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orbitlog.pipeline.sources.broker_stores import BrokerStore, OptionError, log_path_options
from orbitlog.pipeline.sources.message_columns import MESSAGE_COLUMNS
from orbitlog.pipeline.sources.restricted_sql import require_reading_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "messages"
_COUNT_ALL = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)
_CHEAPEST = "queueOffset"
# JSON names of the command line (docs/reference/cli.md) and the expressions that compute them.
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
    """Which messages to return; None matches everything. Times are milliseconds, `to_ms` is exclusive."""

    topic: str | None = None
    key: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    contains: str | None = None


def messages_frame(
    spark: SparkSession,
    stores: Sequence[BrokerStore],
    wanted: MessageFilter | None = None,
    columns: Sequence[str] | None = None,
    cluster: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return messages of stores with the given columns (None: all).

    `cluster` has the options of a connection: then the topic of the filter is read from that cluster instead.
    """
    from pyspark.sql import functions as F

    from orbitlog.pipeline.sources.commitlog_source import CommitLogSource
    from orbitlog.pipeline.sources.topic_source import TopicSource

    wanted = wanted or MessageFilter()
    chosen = list(MESSAGE_COLUMNS) if columns is None else list(columns)
    needed = list(dict.fromkeys((*chosen, *_filter_columns(wanted))))
    schema = ", ".join(f"{name} {MESSAGE_COLUMNS[name].kind}" for name in needed)
    reader = spark.read.format((CommitLogSource if wanted.topic is None else TopicSource).name()).schema(schema)
    if cluster is None:
        paths = ",".join(f"{store.broker_name}={store.root}" for store in stores)
        reader = reader.option("storePath", paths).options(**log_path_options(stores))
    elif wanted.topic is None:
        raise OptionError("a query over a cluster needs a topic")
    else:
        reader = reader.options(**cluster)
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


def _filter_columns(wanted: MessageFilter) -> list[str]:
    """Return the columns that the filter reads."""
    columns: list[str] = []
    if wanted.from_ms is not None or wanted.to_ms is not None:
        columns.append("storeTimestamp")
    if wanted.key is not None:
        columns += ["keys", "uniqKey"]
    if wanted.contains is not None:
        columns.append("body")
    return columns


def _instant(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise OptionError(f"{milliseconds} ms is out of range for a timestamp") from None


def query_sql(
    spark: SparkSession,
    stores: Sequence[BrokerStore],
    sql: str,
    wanted: MessageFilter | None = None,
    *,
    cluster: Mapping[str, str] | None = None,
    is_restricted: bool = False,
) -> DataFrame:
    """Run SQL over the view `messages`; raise `RefusedSql` if it is restricted and does more than read that view."""
    if is_restricted:
        require_reading_sql(spark, sql, VIEW)
    messages_frame(spark, stores, wanted, columns_named(sql), cluster).createOrReplaceTempView(VIEW)
    return spark.sql(sql)


def columns_named(sql: str) -> list[str]:
    """Return the columns that a query may use: those it names, or all default columns if it contains `*`.

    Spark does not pass the used columns to a Python data source, and decoding unused ones would take most of the time.
    """
    text = _COUNT_ALL.sub("count(1)", sql)
    words = {word.lower() for word in re.findall(r"\w+", text)}
    has_star = "*" in text
    named = [
        name for name, column in MESSAGE_COLUMNS.items() if name.lower() in words or (has_star and column.by_default)
    ]
    return named or [_CHEAPEST]


def as_json_rows(frame: DataFrame) -> DataFrame:
    """Return messages with the JSON names of the command line: times in milliseconds, bodies as length and hash."""
    return frame.selectExpr(*(f"{expression} AS `{name}`" for name, expression in _JSON_FIELDS))
