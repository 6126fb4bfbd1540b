"""Sink options: `df.write|writeStream.format("rocketmq")`, parsed with one-sentence errors."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from orbitlog.errors import FormatError
from orbitlog.formats.names import check_group, check_topic
from orbitlog.pipeline.network.network_options import CONNECTION_OPTIONS, ClusterOptions, parse_cluster_options
from orbitlog.pipeline.sources.broker_stores import OptionError
from orbitlog.pipeline.sources.source_options import OptionReader

PRODUCER_GROUP_DEFAULT = "orbitlog-spark"
BATCH_ROWS_DEFAULT, BATCH_ROWS_MAX = 256, 100_000
BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX = 512 * 1024, 4 * 1024 * 1024
SENDS_IN_FLIGHT_DEFAULT, SENDS_IN_FLIGHT_MAX = 8, 256

SINK_OPTIONS: Mapping[str, str] = {
    **CONNECTION_OPTIONS,
    "topic": "topic of all rows; without it each row needs the column topic",
    "producerGroup": "producer group, for access control and transactions (orbitlog-spark)",
    "batchRows": "maximum number of rows in one request (256); 1 sends each row by itself",
    "batchBytes": "maximum size of one request (524288)",
    "sendsInFlight": "concurrent requests of a task (8)",
    "markPath": "directory of write-ahead marks, seen by all executors; default of a stream: below its checkpoint",
    "writeId": "identity of a batch write: a second run with the same id and markPath sends only what is missing",
    "transactional": "rows become visible when the whole batch is committed (false)",
    "failedRowsPath": "directory of Parquet files for rows that no broker accepts; without it they fail the write",
    "sentRowsPath": "directory of Parquet files that record the id, queue and offset of each row",
    "maxRowsPerSecondPerTask": "maximum rate at which a task sends rows",
    "checkpointLocation": "given by Spark to streams",
    "path": "not used",
    "queryName": "given by Spark to streams",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of the sink."""

    cluster: ClusterOptions
    topic: str | None
    producer_group: str
    batch_rows: int
    batch_bytes: int
    sends_in_flight: int
    mark_path: str | None
    write_id: str
    is_transactional: bool
    failed_rows_path: str | None
    sent_rows_path: str | None = None
    rows_per_second_max: int | None = None


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Parse the options; raise `OptionError` if they are invalid or contradict each other."""
    reader = OptionReader(options, SINK_OPTIONS)
    if not reader.has("nameServer"):
        raise OptionError("nameServer is missing; name the cluster to write to, as in nameServer=HOST:PORT")
    if reader.has("path"):
        raise OptionError("a topic has no path; call save() without one, and give option topic")
    if is_stream and reader.has("writeId"):
        raise OptionError("writeId is for batch writes; a stream is identified by its checkpoint")
    if reader.has("writeId") and not reader.has("markPath"):
        raise OptionError("writeId is given without markPath; give the directory in which the marks are kept")
    mark_path = reader.text("markPath")
    checkpoint = reader.text("checkpointLocation")
    if is_stream and mark_path is None and checkpoint is not None:
        mark_path = f"{checkpoint.rstrip('/')}/rocketmq-sink"
    if is_stream and mark_path is None:
        raise OptionError("markPath is missing; a stream without checkpointLocation needs a directory for its marks")
    return SinkOptions(
        cluster=parse_cluster_options(reader),
        topic=_topic(reader),
        producer_group=_group(reader),
        batch_rows=_bounded(reader, "batchRows", BATCH_ROWS_DEFAULT, BATCH_ROWS_MAX),
        batch_bytes=_bounded(reader, "batchBytes", BATCH_BYTES_DEFAULT, BATCH_BYTES_MAX),
        sends_in_flight=_bounded(reader, "sendsInFlight", SENDS_IN_FLIGHT_DEFAULT, SENDS_IN_FLIGHT_MAX),
        mark_path=mark_path,
        write_id=reader.text("writeId") or uuid.uuid4().hex,
        is_transactional=reader.truth("transactional", False),
        failed_rows_path=reader.text("failedRowsPath"),
        sent_rows_path=reader.text("sentRowsPath"),
        rows_per_second_max=reader.number("maxRowsPerSecondPerTask"),
    )


def _bounded(reader: OptionReader, name: str, default: int, maximum: int) -> int:
    value = reader.number(name) or default
    if value > maximum:
        raise OptionError(f"{name}={value} is over the maximum of {maximum}")
    return value


def _topic(reader: OptionReader) -> str | None:
    topic = reader.text("topic")
    if topic is None:
        return None
    try:
        return check_topic(topic)
    except FormatError as error:
        raise OptionError(f"topic={topic[:80]} is not a valid topic name: {error.problem}") from None


def _group(reader: OptionReader) -> str:
    group = reader.text("producerGroup") or PRODUCER_GROUP_DEFAULT
    try:
        return check_group(group)
    except FormatError as error:
        raise OptionError(f"producerGroup={group[:80]} is not a valid group name: {error.problem}") from None
