"""POP check points and acknowledgements: the messages of `rmq_sys_REVIVE_LOG_<cluster>`.

A Java broker commits a group's offset when it delivers messages, and appends a check point that names them.
Acknowledgements follow as further messages. The revive service reads both and redelivers messages without one.
Mirrors Java `PopCheckPoint`, `AckMsg`, `BatchAckMsg` and `PopAckConstants`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import ClassVar, NamedTuple

from orbitlog.errors import BadField
from orbitlog.formats.compat import Compat
from orbitlog.formats.tables.fastjson_writer import write_compact
from orbitlog.formats.tables.json_records import (
    BOOL,
    INT,
    LONG,
    TEXT,
    Computed,
    JsonRecord,
    decode_record,
    encode_record,
    java,
    json_record,
    list_of,
    optional,
)
from orbitlog.formats.tables.loose_json import Json, read_json

CHECK_POINT_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
# A check point goes into the revive topic this long before its messages become visible, its acknowledgements then.
ACK_INTERVAL_MS = 1_000
MESSAGES_MAX = 32  # Java keeps acknowledgements in the bits of an int

# Names that brokers before 5.2 wrote for the fields of an acknowledgement.
_LONG_NAMES = {
    "ackOffset": "ao",
    "startOffset": "so",
    "consumerGroup": "c",
    "topic": "t",
    "queueId": "q",
    "popTime": "pt",
    "brokerName": "bn",
    "ackOffsetList": "aol",
}


class CheckPointKey(NamedTuple):
    """What an acknowledgement and its check point have in common.

    Java also compares the broker's name, which batches that its buffer wrote do not contain.
    """

    topic: str
    group: str
    queue_id: int
    start_queue_offset: int
    pop_timestamp_ms: int


@json_record
class PopCheckPoint(JsonRecord):
    """Messages of one queue that one pop delivered."""

    COMPUTED: ClassVar[dict[str, Computed]] = {"reviveTime": Computed("visible_ms")}

    topic: str = field(metadata=java("t", TEXT))
    group: str = field(metadata=java("c", TEXT))
    queue_id: int = field(metadata=java("q", INT))
    start_queue_offset: int = field(metadata=java("so", LONG))
    pop_timestamp_ms: int = field(metadata=java("pt", LONG))
    invisible_ms: int = field(metadata=java("it", LONG))
    count: int = field(metadata=java("n", INT))
    differences: tuple[int, ...] = field(default=(), metadata=java("d", list_of(INT)))
    broker_name: str | None = field(default=None, metadata=java("bn", optional(TEXT)))
    acknowledged_bits: int = field(default=0, metadata=java("bm", INT))
    revive_offset: int = field(default=0, metadata=java("ro", LONG))
    is_suspended: bool = field(default=False, metadata=java("sp", BOOL))

    @property
    def visible_ms(self) -> int:
        """The timestamp at which unacknowledged messages are redelivered."""
        return self.pop_timestamp_ms + self.invisible_ms

    @property
    def key(self) -> CheckPointKey:
        return CheckPointKey(self.topic, self.group, self.queue_id, self.start_queue_offset, self.pop_timestamp_ms)

    @property
    def queue_offsets(self) -> list[int]:
        """The messages; brokers before 5.0.1 wrote no differences, and delivered consecutive offsets."""
        start = self.start_queue_offset
        return [start + each for each in (self.differences or range(self.count))]


class PopAck(NamedTuple):
    """Messages of one check point that were acknowledged."""

    key: CheckPointKey
    queue_offsets: tuple[int, ...]


@json_record
class _Ack(JsonRecord):
    topic: str = field(metadata=java("t", TEXT))
    group: str = field(metadata=java("c", TEXT))
    queue_id: int = field(metadata=java("q", INT))
    start_queue_offset: int = field(metadata=java("so", LONG))
    pop_timestamp_ms: int = field(metadata=java("pt", LONG))
    queue_offset: int = field(default=-1, metadata=java("ao", LONG))
    broker_name: str | None = field(default=None, metadata=java("bn", optional(TEXT)))


@json_record
class _BatchAck(_Ack):
    queue_offsets: tuple[int, ...] = field(default=(), metadata=java("aol", list_of(LONG)))


def decode_check_point(body: bytes) -> PopCheckPoint:
    """Read the body of a check point; raise `FormatError` if it does not name its messages."""
    point = decode_record(PopCheckPoint, _read(body), "check point")
    if not 0 <= point.count <= MESSAGES_MAX or (point.differences and len(point.differences) != point.count):
        raise BadField(f"{point.count} messages, {len(point.differences)} offsets", field="check point.n")
    return point


def encode_check_point(point: PopCheckPoint, compat: Compat) -> bytes:
    """Write a check point as Java 5.5 does."""
    return _write(point, compat)


def decode_ack(body: bytes) -> PopAck:
    """Read the body of an acknowledgement, of one message or of several."""
    value = _read(body)
    if isinstance(value, dict):
        value = {_LONG_NAMES.get(str(name), name): child for name, child in value.items()}
    ack = decode_record(_BatchAck, value, "acknowledgement")
    key = CheckPointKey(ack.topic, ack.group, ack.queue_id, ack.start_queue_offset, ack.pop_timestamp_ms)
    return PopAck(key, ack.queue_offsets or (ack.queue_offset,))


def encode_ack(key: CheckPointKey, queue_offset: int, broker_name: str, compat: Compat) -> bytes:
    """Write the acknowledgement of one message as Java 5.5 does."""
    return _write(_Ack(*key, queue_offset=queue_offset, broker_name=broker_name), compat)


def check_point_id(point: PopCheckPoint) -> str:
    """Return the unique key under which Java stores a check point."""
    return _unique_id(point.key, point.start_queue_offset, point.broker_name, CHECK_POINT_TAG)


def ack_id(key: CheckPointKey, queue_offset: int, broker_name: str) -> str:
    """Return the unique key under which Java stores an acknowledgement."""
    return _unique_id(key, queue_offset, broker_name, ACK_TAG)


def check_points_of(
    key: CheckPointKey, queue_offsets: Iterable[int], visible_ms: int, broker_name: str
) -> list[PopCheckPoint]:
    """Return check points for messages of one pop: one, unless they are more than a check point can name.

    Each has a key of its own, as a later check point with the same key would replace an earlier one.
    """
    ordered, points = sorted(queue_offsets), []
    for at in range(0, len(ordered), MESSAGES_MAX):
        part = ordered[at : at + MESSAGES_MAX]
        own_key = key if at == 0 else key._replace(start_queue_offset=part[0])
        differences = tuple(each - own_key.start_queue_offset for each in part)
        invisible_ms = visible_ms - key.pop_timestamp_ms
        points.append(PopCheckPoint(*own_key, invisible_ms, len(part), differences, broker_name))
    return points


def _unique_id(key: CheckPointKey, queue_offset: int, broker_name: str | None, tag: str) -> str:
    place = f"{key.topic}@{key.queue_id}@{queue_offset}@{key.group}"
    return f"{place}@{key.pop_timestamp_ms}@{broker_name}@{tag}"


def _read(body: bytes) -> Json:
    try:
        return read_json(body.decode())
    except UnicodeDecodeError as error:
        raise BadField(f"is not UTF-8 at byte {error.start}", field="body") from None


def _write(bean: JsonRecord, compat: Compat) -> bytes:
    fields: dict[str | int, Json] = {
        name: value for name, value in encode_record(bean, compat).items() if value is not None
    }
    return write_compact(fields, int_keys_on_own_line=compat.int_keys_on_own_line).encode()
