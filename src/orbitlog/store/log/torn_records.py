"""Zeros in the properties of a message: legal, and what bytes that a crash kept from the disk look like.

A record's checksum covers its body alone. In a log of our own a record without a zero in its topic and properties is
whole: whatever part of it did not reach the disk would be zeros there, or is caught by the body's checksum or by
lengths that do not add up. A message that has zeros in its properties is therefore stored with the property CRC
(`formats.records.property_crc`) even where no setting asks for it. After a crash such a record is whole if that holds,
and only then.
"""

from __future__ import annotations

from orbitlog.errors import ChecksumMismatch
from orbitlog.formats.records.message import Message, encode_message
from orbitlog.formats.records.properties import check_crc_property


def is_torn(message: Message) -> bool:
    """Tell of a record in a log of our own whether a crash kept parts of it from the disk."""
    if 0 not in message.properties_raw:
        return "\0" in message.topic
    try:
        return not check_crc_property(encode_message(message))
    except ChecksumMismatch:
        return True
