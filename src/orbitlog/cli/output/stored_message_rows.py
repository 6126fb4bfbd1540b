"""Rows of stored messages: a JSON object on one line, or the cells of a table.

The JSON names are a contract (docs/reference/cli.md). Objects are formatted by hand, field by field: that is twice as
fast as a general encoder, and it determines the speed of a dump.
"""

from __future__ import annotations

from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted

from orbitlog.cli.output.display_text import body_preview, byte_count, host_text, local_time, printable
from orbitlog.errors import FormatError
from orbitlog.formats.records import flags
from orbitlog.formats.records import properties as props
from orbitlog.formats.records.compression import inflate_body
from orbitlog.formats.records.message import Message
from orbitlog.formats.records.properties import decode_properties

_NULL = "null"
STORED_FIELDS = (
    *("topic", "queueId", "queueOffset", "commitLogOffset", "storeSize", "msgId", "offsetMsgId", "keys", "tags"),
    *("properties", "bodyCRC", "bodySha256", "bodyLength", "sysFlag", "flag", "bornTimestamp", "storeTimestamp"),
    *("bornHost", "storeHost", "reconsumeTimes", "preparedTransactionOffset"),
)


def message_json(message: Message, size_bytes: int) -> tuple[str, FormatError | None]:
    """Return the JSON object, and the error if inflating the body failed: length and hash are null then."""
    physical_offset, body = message.physical_offset, message.body
    properties = decode_properties(message.properties_raw)
    keys, tags = properties.get(props.KEYS), properties.get(props.TAGS)
    unique_key = properties.get(props.UNIQ_KEY)
    offset_id = f'"{(message.store_host_raw + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()}"'
    stated = ",".join([f"{quoted(name)}:{quoted(value)}" for name, value in properties.items()])
    error: FormatError | None = None
    if message.sys_flag & flags.COMPRESSED:
        body_length, body_hash, error = _inflated_facts(message)
    else:
        body_length, body_hash = f"{len(body)}", f'"{sha256(body).hexdigest()}"'
    line = (
        f'{{"topic":{quoted(message.topic)},"queueId":{message.queue_id},"queueOffset":{message.queue_offset},'
        f'"commitLogOffset":{physical_offset},"storeSize":{size_bytes},'
        f'"msgId":{quoted(unique_key) if unique_key else offset_id},"offsetMsgId":{offset_id},'
        f'"keys":{_NULL if keys is None else quoted(keys)},"tags":{_NULL if tags is None else quoted(tags)},'
        f'"properties":{{{stated}}},"bodyCRC":{message.body_crc},"bodySha256":{body_hash},'
        f'"bodyLength":{body_length},"sysFlag":{message.sys_flag},"flag":{message.flag},'
        f'"bornTimestamp":{message.born_timestamp_ms},"storeTimestamp":{message.store_timestamp_ms},'
        f'"bornHost":"{host_text(message.born_host_raw)}","storeHost":"{host_text(message.store_host_raw)}",'
        f'"reconsumeTimes":{message.reconsume_times},'
        f'"preparedTransactionOffset":{message.prepared_transaction_offset}}}'
    )
    return line, error


def _inflated_facts(message: Message) -> tuple[str, str, FormatError | None]:
    """Return length and hash of the inflated body, both null if inflating failed."""
    body, error = _inflated(message)
    return (_NULL, _NULL, error) if body is None else (f"{len(body)}", f'"{sha256(body).hexdigest()}"', None)


def _inflated(message: Message) -> tuple[bytes | None, FormatError | None]:
    try:
        return inflate_body(message.body, message.sys_flag), None
    except FormatError as error:
        return None, error


def message_cells(message: Message, size_bytes: int) -> tuple[tuple[str, ...], FormatError | None]:
    """Return the cells of a table row, and the error if inflating the body failed."""
    properties = message.properties
    body, error = _inflated(message)
    cells = (
        str(message.physical_offset),
        byte_count(size_bytes),
        printable(message.topic),
        str(message.queue_id),
        str(message.queue_offset),
        printable(properties.get(props.TAGS, "")),
        printable(properties.get(props.KEYS, "")),
        local_time(message.store_timestamp_ms),
        host_text(message.born_host_raw),
        "?" if body is None else byte_count(len(body)),
        "inflating failed" if body is None else body_preview(body),
    )
    return cells, error
