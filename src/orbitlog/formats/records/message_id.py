"""The offset message id: the broker's address and the record's physical offset in hexadecimal.

32 digits for an IPv4 broker, 56 for IPv6. Mirrors Java `MessageDecoder.createMessageId` and `decodeMessageId`.
"""

from __future__ import annotations

from dataclasses import dataclass

from orbitlog.errors import BadField
from orbitlog.formats.hosts import IPV4_HOST_BYTES, IPV6_HOST_BYTES, Host, decode_host

_PHYSICAL_OFFSET_BYTES = 8
_SIZES = (IPV4_HOST_BYTES + _PHYSICAL_OFFSET_BYTES, IPV6_HOST_BYTES + _PHYSICAL_OFFSET_BYTES)


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    store_host: Host
    physical_offset: int

    def __str__(self) -> str:
        offset_raw = self.physical_offset.to_bytes(_PHYSICAL_OFFSET_BYTES, "big", signed=True)
        return (self.store_host.encode() + offset_raw).hex().upper()


def parse_offset_message_id(text: str) -> OffsetMessageId:
    """Read an offset message id."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in _SIZES or len(text) != 2 * len(raw):
        raise BadField(f"{text[:64]!r} is not 32 or 56 hexadecimal digits", field="offset message id")
    host_raw, offset_raw = raw[:-_PHYSICAL_OFFSET_BYTES], raw[-_PHYSICAL_OFFSET_BYTES:]
    return OffsetMessageId(decode_host(host_raw), int.from_bytes(offset_raw, "big", signed=True))
