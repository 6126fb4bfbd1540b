"""The properties of a message: `name 0x01 value 0x02 name 0x01 value 0x02 …` in UTF-8.

Whether the last property ends with 0x02 depends on the version that wrote it (`compat.Compat`), so a reader
takes both. Mirrors Java `MessageDecoder.messageProperties2String` and `string2messageProperties`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

from orbitlog.errors import BadField, ChecksumMismatch
from orbitlog.formats.java import utf8_decode, utf8_encode

NAME_END = "\x01"
PROPERTY_END = "\x02"
PROPERTIES_BYTES_MAX = 32767

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
CLUSTER = "CLUSTER"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
RETRY_TOPIC = "RETRY_TOPIC"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
TRANSACTION_ID = "__transactionId__"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CRC32 = "__CRC32#"
LITE_TOPIC = "__LITE_TOPIC"

# Of Orbitlog: why a message is in the quarantine topic, where the original is, and what the copy lacks.
QUARANTINE_REASON = "QUARANTINE_REASON"
QUARANTINE_TOPIC = "QUARANTINE_TOPIC"
QUARANTINE_QUEUE_ID = "QUARANTINE_QID"
QUARANTINE_QUEUE_OFFSET = "QUARANTINE_QUEUE_OFFSET"
QUARANTINE_PHYSICAL_OFFSET = "QUARANTINE_PHYSICAL_OFFSET"
QUARANTINE_OMITTED = "QUARANTINE_OMITTED"

KEY_SEPARATOR = " "

# The record checksum of 5.2+ (`enabledAppendPropCRC`): always the last bytes of the properties.
_CRC_DIGITS = 10
CRC_PROPERTY_BYTES = len(CRC32) + len(NAME_END) + _CRC_DIGITS + len(PROPERTY_END)
assert CRC_PROPERTY_BYTES == 20
CRC_PROPERTY_START = (CRC32 + NAME_END).encode()

_SEPARATORS = re.compile("[\x01\x02]")
_PROPERTY_END_RAW = PROPERTY_END.encode()


def encode_properties(properties: Mapping[str, str], *, trailing_separator: bool = True) -> bytes:
    """Join properties in their order; an empty value is written (though Java's reader drops it)."""
    # One check of all; only a failure looks for the invalid one. Properties are encoded for every scheduled message.
    if PROPERTY_END in "".join(properties.values()) or _SEPARATORS.search("".join(properties)):
        for name, value in properties.items():
            if _SEPARATORS.search(name) or PROPERTY_END in value:
                raise BadField("holds a separator (0x01, 0x02)", field=f"property {name!r}")
    text = PROPERTY_END.join([f"{name}{NAME_END}{value}" for name, value in properties.items()])
    return utf8_encode(text + PROPERTY_END if trailing_separator and text else text)


def decode_properties(raw: bytes | memoryview) -> dict[str, str]:
    """Split into a map as Java 4.9.1 and later do.

    An item needs a name and a value of at least one character each, else it is dropped; a value may hold
    further 0x01; the last of several equal names wins. Malformed UTF-8 reads as U+FFFD.
    """
    properties: dict[str, str] = {}
    for item in utf8_decode(raw).split(PROPERTY_END):
        name, _, value = item.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def join_properties(member: bytes, batch: bytes) -> bytes:
    """Append batch-level properties to a batch member's own, with exactly one separator between them."""
    if member and batch and member[-1] != _PROPERTY_END_RAW[0]:
        return member + _PROPERTY_END_RAW + batch
    return member + batch


def append_crc_property(record_without_crc: bytes) -> bytes:
    """Return the 20 bytes of `__CRC32#` for a record that is complete but for them.

    The ten digits are the decimal CRC, least significant first.
    """
    return _crc_property(zlib.crc32(record_without_crc) & 0x7FFFFFFF)


def check_crc_property(record: bytes | memoryview) -> bool:
    """Check the `__CRC32#` property at the end of a record; return False if it has none."""
    if len(record) < CRC_PROPERTY_BYTES:
        return False
    stored = bytes(record[-CRC_PROPERTY_BYTES:])
    if not stored.startswith(CRC_PROPERTY_START):
        return False
    computed = zlib.crc32(record[:-CRC_PROPERTY_BYTES]) & 0x7FFFFFFF
    if stored != _crc_property(computed):
        digits = stored[len(CRC32) + 1 : -1][::-1]
        stated = int(digits) if digits.isdigit() else -1
        raise ChecksumMismatch(field=f"property {CRC32}", stored=stated, computed=computed)
    return True


def _crc_property(crc: int) -> bytes:
    return f"{CRC32}{NAME_END}{str(crc).zfill(_CRC_DIGITS)[::-1]}{PROPERTY_END}".encode()
