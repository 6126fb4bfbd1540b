"""Config files as text: tables for topics, groups and offsets, indented JSON for the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from orbitlog.cli.output.display_text import local_time, printable, zone_name
from orbitlog.cli.output.line_writer import LineWriter
from orbitlog.cli.output.stream_table import Column, StreamTable
from orbitlog.formats.tables.config_files import ConfigValue
from orbitlog.formats.tables.group_config import GroupTable
from orbitlog.formats.tables.loose_json import Json
from orbitlog.formats.tables.offset_tables import ConsumerOffsets, DelayOffsets
from orbitlog.formats.tables.topic_config import (
    PERMISSION_INHERIT,
    PERMISSION_READ,
    PERMISSION_WRITE,
    DataVersion,
    TopicTable,
)

_PERMISSIONS = ((PERMISSION_READ, "R"), (PERMISSION_WRITE, "W"), (PERMISSION_INHERIT, "X"))
Rows = Iterable[Sequence[str]]


def write_config(name: str, content: Json, value: ConfigValue | None, writer: LineWriter) -> None:
    """Write the name and the content of one file."""
    writer.line(f"{printable(name)}{_version_note(value)}")
    match value:
        case TopicTable():
            _write_rows(_TOPIC_COLUMNS, _topic_rows(value), writer)
        case ConsumerOffsets():
            _write_rows(_OFFSET_COLUMNS, _offset_rows(value), writer)
        case DelayOffsets():
            levels = ((str(level), str(offset)) for level, offset in sorted(value.offsets.items()))
            _write_rows([Column("level", right=True), Column("next queue offset", right=True)], levels, writer)
        case GroupTable():
            _write_rows(_GROUP_COLUMNS, _group_rows(value), writer)
        case _:
            for line in json.dumps(content, indent=2, ensure_ascii=False).splitlines():
                writer.line(f"  {printable(line)}")
    writer.line("")


def _version_note(value: ConfigValue | None) -> str:
    version = getattr(value, "data_version", None)
    if not isinstance(version, DataVersion) or not version.timestamp_ms:
        return ""
    return f": change {version.counter}, {local_time(version.timestamp_ms)} {zone_name()}"


def _write_rows(columns: Sequence[Column], rows: Rows, writer: LineWriter) -> None:
    table = StreamTable(writer, columns)
    for row in rows:
        table.row(row)
    table.finish()


_TOPIC_COLUMNS = (
    Column("topic", width_min=16, style="green"),
    Column("read queues", right=True),
    Column("write queues", right=True),
    Column("permission"),
    Column("ordered"),
    Column("tags", dispensable=1),
    Column("attributes", dispensable=2),
)


def _topic_rows(table: TopicTable) -> Rows:
    for topic, config in sorted(table.topics.items()):
        yield (
            printable(topic),
            str(config.read_queue_count),
            str(config.write_queue_count),
            "".join(letter if config.permission & bit else "-" for bit, letter in _PERMISSIONS),
            "yes" if config.ordered else "no",
            printable(config.filter_type),
            printable(" ".join(f"{key}={text}" for key, text in config.attributes.items())),
        )


_OFFSET_COLUMNS = (
    Column("group", width_min=12, style="green"),
    Column("topic", width_min=12),
    Column("next queue offset of each queue", width_max=200, width_min=20),
)


def _offset_rows(table: ConsumerOffsets) -> Rows:
    for key, offsets in sorted(table.offsets.items(), key=lambda item: (item[0].group, item[0].topic)):
        shown = "  ".join(f"{queue_id}: {offset}" for queue_id, offset in sorted(offsets.items()))
        yield printable(key.group), printable(key.topic), shown


_GROUP_COLUMNS = (
    Column("group", width_min=12, style="green"),
    Column("may consume"),
    Column("from minimum", dispensable=1),
    Column("broadcast"),
    Column("orderly", dispensable=2),
    Column("retries", right=True),
    Column("retry queues", right=True),
    Column("broker", right=True, dispensable=3),
    Column("when slow", right=True, dispensable=3),
)


def _group_rows(table: GroupTable) -> Rows:
    for group, config in sorted(table.groups.items()):
        switches = (
            config.consume_enabled,
            config.consume_from_min_enabled,
            config.consume_broadcast_enabled,
            config.consume_orderly,
        )
        yield (
            printable(group),
            *("yes" if switch else "no" for switch in switches),
            str(config.retry_times_max),
            str(config.retry_queue_count),
            str(config.broker_id),
            str(config.slow_consume_broker_id),
        )
