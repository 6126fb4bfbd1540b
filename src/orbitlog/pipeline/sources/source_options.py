"""Data source options: one table of names, and one-sentence errors for invalid values.

Names and meanings are those of Spark's Kafka source if it has the same option (docs/spark.md). Spark passes names in
lower case, so they are compared without case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from orbitlog.errors import BadExpression
from orbitlog.filters.sql_parser import parse_expression
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT, SPLIT_BYTES_MIN
from orbitlog.pipeline.network.network_options import (
    CONNECTION_OPTIONS,
    PULL_OPTIONS,
    ClusterOptions,
    parse_cluster_options,
)
from orbitlog.pipeline.sources.broker_stores import BrokerStore, OptionError, parse_store_paths, with_log_paths
from orbitlog.pipeline.sources.name_hints import name_hint
from orbitlog.pipeline.sources.topic_offsets import (
    ANY_BROKER,
    EARLIEST,
    LATEST,
    Offsets,
    QueueKey,
    parse_assignment,
    parse_offsets,
)
from orbitlog.settings.setting import SettingError
from orbitlog.settings.store_settings import LOG_PATH_SETTINGS

COMMON_OPTIONS: Mapping[str, str] = {
    "storePath": "directories of stores, separated by commas, each PATH or name=PATH",
    "path": "the same, as given to load()",
    "config": "the broker's broker.conf, read for storePathCommitLog; JSON for several stores",
    "storePathCommitLog": "directories of the CommitLog if not below the store's root; JSON for several stores",
    "readOnlyCommitLogStorePaths": "additional directories of the CommitLog; JSON for several stores",
    "storePathDLedgerCommitLog": "directory of the data files of a DLedger log; JSON for several stores",
    "checkCrc": "check the CRC of every body (true)",
    "inflate": "inflate compressed bodies (true)",
    "maxBytesPerTrigger": "approximate maximum of record bytes per micro-batch",
}
TOPIC_OPTIONS: Mapping[str, str] = {
    **COMMON_OPTIONS,
    **CONNECTION_OPTIONS,
    **PULL_OPTIONS,
    "subscribe": "topics, separated by commas",
    "subscribePattern": "a regular expression that must match the whole topic name",
    "assign": 'queues, as {"topic":[0,1]}',
    "startingOffsets": "earliest, latest, or JSON; default earliest for a batch, latest for a stream",
    "endingOffsets": "latest, or JSON; batches only",
    "startingTimestamp": "start at the first message stored at or after this time (ms)",
    "endingTimestamp": "end before the first message stored at or after this time (ms)",
    "startingOffsetsByTimestamp": "JSON with a time (ms) for each queue",
    "endingOffsetsByTimestamp": "JSON with a time (ms) for each queue",
    "startingOffsetsByTimestampStrategy": "if no message is that late: error (default), or latest",
    "failOnDataLoss": "fail the query if messages were deleted or are damaged (true)",
    "maxOffsetsPerTrigger": "approximate maximum of messages per micro-batch",
    "minPartitions": "approximate minimum number of tasks",
    "tags": "only messages with one of these tags, as in `A || B`",
    "includeProperties": "add a column with all properties (true; false with schema=kafka)",
    "includeHeaders": "Kafka's name of includeProperties",
    "schema": "kafka for the columns of Spark's Kafka source",
}
COMMITLOG_OPTIONS: Mapping[str, str] = {
    **COMMON_OPTIONS,
    "startingOffsets": 'earliest, latest, or physical offsets by store, {"broker":0}; default latest for a stream',
    "endingOffsets": "latest, or physical offsets by store; batches only",
    "splitBytes": "bytes of the log that a task reads (128 MiB)",
    "failOnDataLoss": "fail the query if the log is damaged (true); false skips the rest of the segment",
    "includeProperties": "add a column with all properties (true)",
}
_TAG_SEPARATOR = "||"
_NUMBER_MAX = 2**63 - 1
_SQL_MAX = 65_535


class OptionReader:
    """Parses the options of one source; raises `OptionError` with the nearest valid name for an unknown one."""

    def __init__(self, options: Mapping[str, str], known: Mapping[str, str]) -> None:
        by_lower = {name.lower(): name for name in known}
        self._reads_clusters = "nameServer" in known
        self._values: dict[str, str] = {}
        for given, value in options.items():
            name = by_lower.get(given.lower())
            if name is None:
                hint = name_hint(given, by_lower, f"available: {', '.join(known)}")
                raise OptionError(f"unknown option {given!r}; {hint}")
            self._values[name] = str(value)

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def has(self, name: str) -> bool:
        return name in self._values

    def truth(self, name: str, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"{name}={value} is neither true nor false")
        return value.lower() == "true"

    def number(self, name: str, *, minimum: int = 1) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,19}", value.strip()) or not minimum <= int(value) <= _NUMBER_MAX:
            raise OptionError(f"{name}={value} is not a whole number of at least {minimum}")
        return int(value)

    def one_of(self, name: str, choices: tuple[str, ...]) -> str | None:
        value = self._values.get(name)
        if value is not None and value.lower() not in choices:
            raise OptionError(f"{name}={value} is not one of {', '.join(choices)}")
        return None if value is None else value.lower()

    def stores(self) -> tuple[BrokerStore, ...]:
        text = self.text("storePath") or self.text("path")
        if text is None:
            alternative = " or the nameServer of a cluster" if self._reads_clusters else ""
            raise OptionError(
                f"storePath is missing; name the directory that holds commitlog/, as in storePath=PATH{alternative}"
            )
        if self.has("storePath") and self.has("path"):
            raise OptionError("both storePath and load(path) are given; give one")
        given = {key: value for key in LOG_PATH_SETTINGS if (value := self.text(key)) is not None}
        try:
            return with_log_paths(parse_store_paths(text), self.text("config"), given)
        except (OSError, SettingError) as error:
            raise OptionError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Subscription:
    """The subscription of a query: topics by name, topics by a pattern, or single queues."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[QueueKey] = frozenset()

    @property
    def named_topics(self) -> tuple[str, ...]:
        """The topics that must exist."""
        return self.topics or tuple(sorted({key.topic for key in self.queues}))

    def wants_topic(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.named_topics

    def wants(self, key: QueueKey) -> bool:
        if self.queues:
            return key in self.queues or key._replace(broker_name=ANY_BROKER) in self.queues
        return self.wants_topic(key.topic)


@dataclass(frozen=True, slots=True)
class Position:
    """Start or end of a read: one mark for all queues, offsets by queue, or times (ms)."""

    mark: int | None = None
    offsets: Offsets = field(default_factory=dict)
    timestamp_ms: int | None = None
    timestamps_ms: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """The parsed options of the topic source."""

    stores: tuple[BrokerStore, ...]
    cluster: ClusterOptions | None
    """The cluster to read over the network; with stores, what these do not have. None if only stores are read."""
    sql: str | None
    subscription: Subscription
    start: Position
    end: Position
    start_is_given: bool
    too_late_is_latest: bool
    fail_on_data_loss: bool
    offsets_per_trigger_max: int | None
    bytes_per_trigger_max: int | None
    partitions_min: int | None
    tags: tuple[str, ...]
    is_kafka: bool
    include_properties: bool
    check_crc: bool
    inflate: bool


def parse_topic_options(options: Mapping[str, str], *, is_stream: bool) -> TopicOptions:
    reader = OptionReader(options, TOPIC_OPTIONS)
    cluster = _cluster(reader)
    stores = reader.stores() if cluster is None or reader.has("storePath") else ()
    # The brokers of a cluster are known only when it is asked: None accepts every name.
    brokers = [store.broker_name for store in stores] if cluster is None else None
    if is_stream:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if reader.has(name):
                raise OptionError(
                    f"{name} is for batch queries; a stream ends when it is stopped, or with availableNow"
                )
    start = _position(reader, brokers, "starting", LATEST if is_stream else EARLIEST)
    end = _position(reader, brokers, "ending", LATEST)
    if not is_stream and (start.mark == LATEST or LATEST in start.offsets.values()):
        raise OptionError("startingOffsets=latest would read nothing in a batch; use earliest, offsets or a time")
    if end.mark == EARLIEST or EARLIEST in end.offsets.values():
        raise OptionError("endingOffsets=earliest would read nothing; use latest, offsets or a time")
    is_kafka = reader.one_of("schema", ("kafka",)) == "kafka"
    strategy = reader.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"))
    headers = reader.truth("includeHeaders", not is_kafka)
    return TopicOptions(
        stores=stores,
        cluster=cluster,
        sql=_sql(reader),
        subscription=_subscription(reader, brokers),
        start=start,
        end=end,
        start_is_given=any(reader.has(f"starting{name}") for name in ("Offsets", "Timestamp", "OffsetsByTimestamp")),
        too_late_is_latest=strategy == "latest",
        fail_on_data_loss=reader.truth("failOnDataLoss", True),
        offsets_per_trigger_max=reader.number("maxOffsetsPerTrigger"),
        bytes_per_trigger_max=reader.number("maxBytesPerTrigger"),
        partitions_min=reader.number("minPartitions"),
        tags=parse_tags(reader.text("tags") or "*"),
        is_kafka=is_kafka,
        include_properties=reader.truth("includeProperties", headers),
        check_crc=reader.truth("checkCrc", True),
        inflate=reader.truth("inflate", True),
    )


_OF_STORE_PATH = ("config", *LOG_PATH_SETTINGS)


def _cluster(reader: OptionReader) -> ClusterOptions | None:
    """Return the cluster to read, None if only stores are read; raise `OptionError` for options that do not match."""
    if not reader.has("nameServer"):
        given = [name for name in (*CONNECTION_OPTIONS, *PULL_OPTIONS) if reader.has(name)]
        if given:
            raise OptionError(f"{given[0]} is for reading over the network; add nameServer=HOST:PORT, or remove it")
        return None
    if reader.has("path"):
        raise OptionError(
            "load(path) is for reading files, but nameServer is given; give one, or storePath=BROKER=PATH"
        )
    given = [name for name in _OF_STORE_PATH if reader.has(name)]
    if given and not reader.has("storePath"):
        raise OptionError(f"{given[0]} is for reading files, but only nameServer is given; add storePath or remove it")
    if reader.has("sql") and reader.has("storePath"):
        raise OptionError("sql is evaluated by brokers, but storePath is given also; give one of them")
    return parse_cluster_options(reader)


def _sql(reader: OptionReader) -> str | None:
    sql = reader.text("sql")
    if sql is None:
        return None
    if parse_tags(reader.text("tags") or "*"):
        raise OptionError("tags and sql are both given; give one, or test TAGS in the expression")
    if not sql.strip() or len(sql) > _SQL_MAX:
        raise OptionError(f"sql must be an expression of 1 to {_SQL_MAX} characters, such as price > 10")
    try:
        parse_expression(sql)
    except BadExpression as error:
        raise OptionError(f"sql is not a valid SQL92 expression: {error}") from None
    return sql


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The parsed options of the log source; `start` and `end` are physical offsets by store."""

    stores: tuple[BrokerStore, ...]
    start_mark: int
    start: Mapping[str, int]
    end: Mapping[str, int]
    split_bytes: int
    bytes_per_trigger_max: int | None
    fail_on_data_loss: bool
    check_crc: bool
    inflate: bool


def parse_log_options(options: Mapping[str, str], *, is_stream: bool) -> LogOptions:
    reader = OptionReader(options, COMMITLOG_OPTIONS)
    stores = reader.stores()
    brokers = [store.broker_name for store in stores]
    if is_stream and reader.has("endingOffsets"):
        raise OptionError("endingOffsets is for batch queries; a stream ends when it is stopped, or with availableNow")
    mark, start = _physical(reader, brokers, "startingOffsets", LATEST if is_stream else EARLIEST)
    end_mark, end = _physical(reader, brokers, "endingOffsets", LATEST)
    if not is_stream and mark == LATEST:
        raise OptionError("startingOffsets=latest would read nothing in a batch; use earliest or physical offsets")
    if end_mark == EARLIEST:
        raise OptionError("endingOffsets=earliest would read nothing; use latest or physical offsets")
    return LogOptions(
        stores=stores,
        start_mark=mark,
        start=start,
        end=end,
        split_bytes=reader.number("splitBytes", minimum=SPLIT_BYTES_MIN) or SPLIT_BYTES_DEFAULT,
        bytes_per_trigger_max=reader.number("maxBytesPerTrigger"),
        fail_on_data_loss=reader.truth("failOnDataLoss", True),
        check_crc=reader.truth("checkCrc", True),
        inflate=reader.truth("inflate", True),
    )


def _physical(reader: OptionReader, brokers: list[str], option: str, default: int) -> tuple[int, dict[str, int]]:
    text = (reader.text(option) or "").strip()
    marks = {"": default, "earliest": EARLIEST, "latest": LATEST}
    if text.lower() in marks:
        return marks[text.lower()], {}
    form = f'write earliest, latest or {{"{brokers[0]}":0}}'
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{option}={text[:80]} is neither earliest, latest nor JSON ({error}); {form}") from None
    if not isinstance(value, dict) or set(value) != set(brokers):
        raise OptionError(f"{option} must give a physical offset for each of {', '.join(brokers)}; {form}")
    if not all(isinstance(number, int) and not isinstance(number, bool) and number >= 0 for number in value.values()):
        raise OptionError(f"{option}: physical offsets are whole numbers of at least 0; {form}")
    return default, value


def parse_tags(expression: str) -> tuple[str, ...]:
    """Parse `A || B`; return () for `*` or an empty text, which select everything."""
    tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split(_TAG_SEPARATOR) if tag.strip()))
    return () if not tags or "*" in tags else tags


def _subscription(reader: OptionReader, brokers: list[str] | None) -> Subscription:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if reader.has(name)]
    if len(given) != 1:
        state = f"{' and '.join(given)} are given" if given else "all are missing"
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign is required; {state}")
    text = reader.text(given[0]) or ""
    if given[0] == "assign":
        return Subscription(queues=parse_assignment(text, brokers))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern={text} is not a valid regular expression: {error}") from None
        return Subscription(pattern=text)
    topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
    if not topics:
        raise OptionError("subscribe is empty; name topics, separated by commas")
    return Subscription(topics=topics)


def _position(reader: OptionReader, brokers: list[str] | None, which: str, default: int) -> Position:
    """Parse start or end; as in Kafka's source, one time overrides times by queue, which override offsets."""
    timestamp_ms = reader.number(f"{which}Timestamp", minimum=0)
    if timestamp_ms is not None:
        return Position(timestamp_ms=timestamp_ms)
    by_timestamp = reader.text(f"{which}OffsetsByTimestamp")
    if by_timestamp is not None:
        return Position(timestamps_ms=parse_offsets(by_timestamp, brokers, f"{which}OffsetsByTimestamp"))
    text = reader.text(f"{which}Offsets")
    if text is None:
        return Position(mark=default)
    if text.strip().startswith("{"):
        return Position(offsets=parse_offsets(text, brokers, f"{which}Offsets"))
    marks = {"earliest": EARLIEST, "latest": LATEST}
    if text.strip().lower() not in marks:
        raise OptionError(f"{which}Offsets={text} is neither earliest nor latest nor JSON")
    return Position(mark=marks[text.strip().lower()])
