"""Outgoing messages: validated arguments, encoded as the request that official clients send.

Mirrors Java `DefaultMQProducerImpl.sendKernelImpl`, `Validators`, `MessageBatch`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from orbitlog.client.connection import checked_input
from orbitlog.client.connection.namespaces import topic_name
from orbitlog.client.connection.routes import AUTO_CREATE_QUEUES, AUTO_CREATE_TOPIC
from orbitlog.errors import ClientError, FormatError
from orbitlog.formats.message_queue import MessageQueue
from orbitlog.formats.records import flags, properties
from orbitlog.formats.records.batch import batch_member_parts
from orbitlog.formats.records.compression import compress_body
from orbitlog.formats.records.flags import CompressionType, TransactionType
from orbitlog.wire.send_headers import SendMessageV2Request

BODY_BYTES_MAX = 4 * 1024 * 1024
COMPRESS_BYTES_MIN = 4096
COMPRESS_IN_THREAD_BYTES = 128 * 1024
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
SHARDING_KEY = "__SHARDINGKEY"
_PLACEHOLDER_ID = "<id>"  # replaced by the id of each message of a batch
# Properties with fewer characters fit into PROPERTIES_BYTES_MAX: a character has at most four bytes, a property two
# separators.
_FITS_CHARACTERS = 4_000
_RESERVED = frozenset(
    (properties.KEYS, properties.TAGS, properties.UNIQ_KEY, properties.WAIT, properties.DELAY, TIMER_DELIVER_MS)
) | {properties.TRANSACTION_PREPARED, properties.PRODUCER_GROUP, properties.REAL_TOPIC, properties.REAL_QUEUE_ID}


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A validated message to send."""

    topic: str
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0

    @property
    def is_worth_compressing(self) -> bool:
        return len(self.body) >= COMPRESS_BYTES_MIN and not self.sys_flag

    @property
    def unique_id(self) -> str:
        return self.properties[properties.UNIQ_KEY]


def body_bytes(body: bytes | str) -> bytes:
    """Return the body as bytes; raise `ClientError` if it is empty or over the limit of brokers."""
    raw = checked_input.body_bytes(body)
    if not raw:
        raise ClientError("a message needs a body: brokers reject empty ones")
    if len(raw) > BODY_BYTES_MAX:
        raise ClientError(
            f"body of {len(raw)} bytes is over the limit of {BODY_BYTES_MAX}: store it elsewhere and send a reference"
        )
    return raw


def make_outgoing(
    topic: str,
    body: bytes | str,
    unique_id: str,
    *,
    tags: str | None = None,
    keys: str | Iterable[str] = (),
    user_properties: Mapping[str, str] | None = None,
    delay: float | timedelta | None = None,
    deliver_at: datetime | None = None,
    delay_level: int | None = None,
    ordered_by: str | None = None,
    flag: int = 0,
) -> OutgoingMessage:
    """Build a message from user arguments; raise `ClientError` if one is invalid."""
    topic_name(topic)
    raw = body_bytes(body)
    given = checked_input.user_properties(user_properties)
    if reserved := _RESERVED & given.keys():
        raise ClientError(f"property {min(reserved)} is reserved: use the parameter for it, or leave it to the broker")
    if joined := checked_input.joined_keys(keys):
        given[properties.KEYS] = joined
    if tags:
        given[properties.TAGS] = checked_input.one_tag(tags)
    if ordered_by is not None:
        given[SHARDING_KEY] = checked_input.text("ordered_by", ordered_by)
    given |= _delay_properties(delay, deliver_at, delay_level)
    _check_properties(given)
    given[properties.UNIQ_KEY] = unique_id
    given[properties.WAIT] = "true"
    return OutgoingMessage(topic, raw, given, flag)


def _check_properties(given: Mapping[str, str]) -> None:
    characters = "".join((*given, *given.values()))
    if len(characters) < _FITS_CHARACTERS and characters.isprintable():
        return  # nearly all messages: short, and without separators, which are not printable
    try:
        size_bytes = len(properties.encode_properties(given))
    except FormatError as error:
        raise ClientError(f"{error.field} {error.problem}") from None
    if size_bytes > properties.PROPERTIES_BYTES_MAX:
        raise ClientError(f"properties of {size_bytes} bytes are over the limit of {properties.PROPERTIES_BYTES_MAX}")


@dataclass(frozen=True, slots=True)
class OutgoingBatch:
    """Messages of one topic, encoded as the body of one request."""

    topic: str
    unique_ids: list[str]
    body: bytes


def make_batch(
    topic: str,
    bodies: Sequence[bytes | str],
    unique_ids: list[str],
    *,
    tags: str | None = None,
    keys: Iterable[str | Iterable[str]] = (),
    user_properties: Mapping[str, str] | None = None,
) -> OutgoingBatch:
    """Build a batch of messages that differ only in bodies, ids and keys; shared properties are encoded once.

    `keys` is empty or has one entry for each body.
    """
    if not bodies:
        raise ClientError("send_batch needs at least one body")
    if isinstance(keys, str):
        raise ClientError("keys of a batch must be a list with one entry for each body")
    keys_of = list(keys)
    if keys_of and len(keys_of) != len(bodies):
        raise ClientError(f"{len(keys_of)} entries of keys for {len(bodies)} bodies: give one entry for each body")
    shared = make_outgoing(topic, b"any", _PLACEHOLDER_ID, tags=tags, user_properties=user_properties).properties
    before, after = properties.encode_properties(shared).rsplit(_PLACEHOLDER_ID.encode(), 1)
    parts: list[bytes] = []
    for body, unique_id, own_keys in zip(bodies, unique_ids, keys_of or [()] * len(bodies), strict=True):
        raw = body_bytes(body)
        keys_raw = _keys_property(own_keys, shared) if own_keys else b""
        own = b"%b%b%b%b" % (keys_raw, before, unique_id.encode(), after)
        parts += batch_member_parts(raw, own)
    joined = b"".join(parts)
    if len(joined) > BODY_BYTES_MAX:
        raise ClientError(f"batch of {len(joined)} bytes is over the limit of {BODY_BYTES_MAX}: split it")
    return OutgoingBatch(topic, unique_ids, joined)


def _keys_property(keys: str | Iterable[str], shared: Mapping[str, str]) -> bytes:
    """Return the encoded KEYS property of one message of a batch; it precedes the shared properties."""
    joined = checked_input.joined_keys(keys)
    if not joined:
        return b""
    _check_properties({properties.KEYS: joined, **shared})
    return properties.encode_properties({properties.KEYS: joined})


def _delay_properties(
    delay: float | timedelta | None, deliver_at: datetime | None, delay_level: int | None
) -> dict[str, str]:
    if (delay is not None) + (deliver_at is not None) + (delay_level is not None) > 1:
        raise ClientError("give one of delay, deliver_at and delay_level")
    if delay_level is not None:
        return {properties.DELAY: str(checked_input.delay_level(delay_level))}
    if delay is not None:
        due_ms = time.time_ns() // 1_000_000 + int(checked_input.seconds("delay", delay) * 1000)
    elif deliver_at is not None:
        due_ms = int(checked_input.aware_datetime("deliver_at", deliver_at).timestamp() * 1000)
    else:
        return {}
    return {TIMER_DELIVER_MS: str(due_ms)}


def send_request(
    message: OutgoingMessage, queue: MessageQueue, group: str, *, transaction: TransactionType = TransactionType.NONE
) -> tuple[SendMessageV2Request, bytes]:
    """Return header and body of the request that sends a message to a queue."""
    text = properties.encode_properties(message.properties).decode()
    sys_flag = message.sys_flag | int(transaction)
    return _header(message.topic, queue, group, text, sys_flag=sys_flag, flag=message.flag), message.body


def compressed(message: OutgoingMessage) -> OutgoingMessage:
    """Return the message with a compressed body, or unchanged if compression does not make it smaller."""
    smaller = compress_body(message.body, CompressionType.ZLIB)
    if len(smaller) >= len(message.body):
        return message
    sys_flag = message.sys_flag | flags.COMPRESSED | CompressionType.ZLIB << 8
    return replace(message, body=smaller, sys_flag=sys_flag)


def batch_request(
    batch: OutgoingBatch, queue: MessageQueue, group: str, unique_id: str
) -> tuple[SendMessageV2Request, bytes]:
    """Return header and body of the request that sends a batch to a queue."""
    text = properties.encode_properties({properties.WAIT: "true", properties.UNIQ_KEY: unique_id}).decode()
    header = _header(batch.topic, queue, group, text)
    header.batch = True
    return header, batch.body


def _header(
    topic: str, queue: MessageQueue, group: str, text: str, *, sys_flag: int = 0, flag: int = 0
) -> SendMessageV2Request:
    return SendMessageV2Request(
        producer_group=group,
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_count=AUTO_CREATE_QUEUES,
        queue_id=queue.queue_id,
        sys_flag=sys_flag,
        born_timestamp_ms=time.time_ns() // 1_000_000,
        flag=flag,
        properties=text,
        broker_name=queue.broker_name,
    )
