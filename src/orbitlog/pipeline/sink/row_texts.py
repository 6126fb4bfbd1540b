"""Row texts: everything of rows but their bodies, as bytes to hash and as properties to send.

`texts_by_row` takes any columns. `texts_by_column` takes tags and keys of plain text, a column at a time; its results
are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitlog.client.producer.outgoing import TIMER_DELIVER_MS, make_outgoing
from orbitlog.errors import ClientError
from orbitlog.formats.java import INT_MAX
from orbitlog.formats.records import properties as props
from orbitlog.kernels.rows.row_members import is_plain_text
from orbitlog.pipeline.sink.row_ids import ByteRanges, constant_bytes, joined_ranges, repeated_range, stable_bytes

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
# The columns that `texts_by_column` takes, in the order of both their names and their properties.
_PLAIN_COLUMNS = {"keys": props.KEYS, "tags": props.TAGS}
_PLAIN_LENGTH_MAX = 1000
_ANY_BODY = b"-"


class QueueOfRow(NamedTuple):
    """The queue that a row must go to, if its columns choose one."""

    queue_id: int | None = None
    broker_name: str | None = None
    sharding_key: str | None = None


ANY_QUEUE = QueueOfRow()


@dataclass(frozen=True, slots=True)
class RowTexts:
    """The texts of consecutive rows; `targets` is None if all rows have one topic and any queue will do."""

    others: ByteRanges
    properties: ByteRanges
    flags: npt.NDArray[np.int64]
    topic: str
    targets: list[tuple[str, QueueOfRow]] | None
    is_single: npt.NDArray[np.bool_] | None
    """Whether a row may not share a request with others: scheduled messages may not."""
    is_counted: npt.NDArray[np.bool_]
    failures: dict[int, str]
    """Why a row is invalid, by its position."""


def texts_by_column(columns: Mapping[str, pa.Array], topic: str | None, rows: int) -> RowTexts | None:
    """Return the texts of rows with one topic and no columns but plain tags and keys; None if there are others."""
    if topic is None or not columns.keys() <= _PLAIN_COLUMNS.keys():
        return None
    others: list[Any] = []
    properties: list[Any] = []
    for column, name in _PLAIN_COLUMNS.items():
        if (array := columns.get(column)) is None:
            continue
        lengths = _plain_lengths(column, array)
        if lengths is None:
            return None
        around = f"('{column}', '", "')"
        sizes = pc.add(lengths, len("".join(around))).cast(pa.string())
        hashed = pc.binary_join_element_wise(sizes, f":{around[0]}", array, around[1], "")
        others.append(pc.fill_null(hashed, stable_bytes(column, None).decode()))
        text = pc.binary_join_element_wise(f"{name}{props.NAME_END}", array, props.PROPERTY_END, "")
        properties.append(pc.if_else(pc.greater(pc.fill_null(lengths, 0), 0), text, ""))
    end = f"{len(topic)}:{topic}"
    everyone = np.ones(rows, np.bool_)
    if not others:
        hashed_end, nothing = repeated_range(end.encode(), rows), repeated_range(b"", rows)
        return RowTexts(hashed_end, nothing, np.zeros(rows, np.int64), topic, None, None, everyone, {})
    return RowTexts(
        ranges_of(pc.binary_join_element_wise(*others, end, "")),
        ranges_of(pc.binary_join_element_wise(*properties, "")),
        np.zeros(rows, np.int64),
        topic,
        None,
        None,
        everyone,
        {},
    )


def _plain_lengths(column: str, array: pa.Array) -> pa.Array | None:
    """Return the lengths of values that need no check but this; None if some value needs one."""
    if not pa.types.is_string(array.type):
        return None
    ranges = ranges_of(array)
    if len(array) and not is_plain_text(ranges.data, ranges.starts[0], ranges.stops[-1]):
        return None
    lengths = pc.binary_length(array)
    if ranges.lengths.max(initial=0) > _PLAIN_LENGTH_MAX:
        return None
    if column == "tags" and pc.any(pc.match_substring(array, "||")).as_py():
        return None
    return lengths


def ranges_of(array: pa.Array) -> ByteRanges:
    """Return the byte ranges of a binary or string column; a null is empty."""
    kind = array.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    if not (is_large or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        raise TypeError(f"{kind} is not a type of text or bytes")
    _, ends, data = array.buffers()
    if not len(array) or data is None:
        return repeated_range(b"", len(array))
    every = np.frombuffer(ends, np.int64 if is_large else np.int32)
    chosen = every[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return ByteRanges(constant_bytes(data), chosen[:-1], chosen[1:])


def texts_by_row(columns: Mapping[str, pa.Array], topic: str | None, rows: int) -> RowTexts:
    """Return the texts of rows with any columns."""
    values = [array.to_pylist() for array in columns.values()]
    by_row = zip(*values, strict=True) if values else [()] * rows
    others, properties = [b""] * rows, [b""] * rows
    flags = np.zeros(rows, np.int64)
    targets = [("", ANY_QUEUE)] * rows
    is_single, is_counted = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    failures: dict[int, str] = {}
    names = sorted(columns)
    for index, row in enumerate(by_row):
        fields = dict(zip(columns, row, strict=True))
        try:
            row_topic, copied = _checked(topic, fields)
            others[index] = b"".join(
                (*(stable_bytes(name, fields[name]) for name in names), stable_bytes("", row_topic.encode()))
            )
            is_counted[index] = True
            properties[index], flags[index], is_single[index] = _property_text(row_topic, fields, copied)
            queue = QueueOfRow(fields.get("queueId"), fields.get("brokerName"), fields.get("shardingKey"))
            targets[index] = row_topic, queue
        except ClientError as error:
            failures[index] = str(error)
    return RowTexts(
        joined_ranges(others), joined_ranges(properties), flags, "", targets, is_single, is_counted, failures
    )


def _checked(topic: str | None, fields: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the topic and the user properties of a row; raise `ClientError` if the row has no id without them."""
    chosen = topic if topic is not None else fields.get("topic")
    if chosen is None:
        raise ClientError("column topic is null")
    copied = {name: value for name, value in fields.get("properties") or () if name not in _NOT_COPIED}
    if any(value is None for value in copied.values()):
        raise ClientError("column properties has a null value")
    return chosen, copied


def _property_text(topic: str, fields: Mapping[str, Any], copied: dict[str, str]) -> tuple[bytes, int, bool]:
    """Return the encoded properties of a row but for its id, its flag, and whether it is scheduled."""
    keys: str | bytes | Sequence[str] = fields.get("keys") or ()
    flag = fields.get("flag") or 0
    if not -INT_MAX - 1 <= flag <= INT_MAX:
        raise ClientError(f"flag {flag} does not fit into 32 bits")
    message = make_outgoing(
        topic,
        _ANY_BODY,
        "",
        tags=fields.get("tags"),
        keys=keys.decode(errors="replace") if isinstance(keys, bytes) else keys,
        user_properties=copied,
        delay=fields.get("delaySeconds"),
        deliver_at=_aware(fields.get("deliverTimestamp")),
        delay_level=fields.get("delayLevel"),
        ordered_by=fields.get("shardingKey"),
        flag=flag,
    )
    given = message.properties
    del given[props.UNIQ_KEY], given[props.WAIT]
    return props.encode_properties(given), flag, props.DELAY in given or TIMER_DELIVER_MS in given


def _aware(instant: datetime | None) -> datetime | None:
    return instant if instant is None or instant.tzinfo is not None else instant.replace(tzinfo=UTC)
