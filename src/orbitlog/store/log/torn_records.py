"""Torn records: detects records of which a crash kept only some pages.

A record's CRC covers only its body. Pages that were not written back read as zeros. So a record by Orbitlog without a
zero byte in topic and properties is complete: a missing page would show there, in the body's CRC or in lengths that do
not add up. A message whose properties contain zero bytes, which is valid, is therefore stored with a property CRC
(`formats.records.property_crc`) even if no setting asks for it; after a crash it is complete only if that CRC is right.
"""

from __future__ import annotations

from orbitlog.errors import ChecksumMismatch
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.formats.records.properties import check_crc_property


def is_torn(message: Message) -> bool:
    """Return whether a record of a log by Orbitlog lacks pages that a crash lost."""
    if 0 not in message.properties_raw:
        return "\0" in message.topic
    try:
        return not check_crc_property(encode_message(message))
    except ChecksumMismatch:
        return True
