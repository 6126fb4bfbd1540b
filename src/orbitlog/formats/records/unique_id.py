"""The unique id that a client gives to a message (property UNIQ_KEY).

Address, process, class loader, milliseconds since the start of the month, counter; hexadecimal, 32 digits with an
IPv4 address and 56 with IPv6. Pure: clock, month and counter are the caller's. Mirrors Java `MessageClientIDSetter`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from orbitlog.errors import BadField

# Process, loader hash, milliseconds since the month's start, counter. The milliseconds are unsigned: a month has
# more of them than an int can hold.
_TAIL = struct.Struct(">HiIH")
_ADDRESS_SIZES = (4, 16)


@dataclass(frozen=True, slots=True)
class UniqueId:
    """The parts of a unique id; `process` and `counter` keep 16 bits."""

    address: bytes
    process: int
    loader_hash: int
    since_month_start_ms: int
    counter: int

    def __str__(self) -> str:
        if len(self.address) not in _ADDRESS_SIZES:
            raise BadField(f"{len(self.address)} bytes of address", field="unique id")
        try:
            tail = _TAIL.pack(self.process & 0xFFFF, self.loader_hash, self.since_month_start_ms, self.counter & 0xFFFF)
        except struct.error as error:
            raise BadField(f"a number does not fit ({error})", field="unique id") from None
        return (self.address + tail).hex().upper()

    def born_timestamp_ms(self, month_start_ms: int, previous_month_start_ms: int, now_ms: int) -> int:
        """When the id was created; the id has no month: a timestamp in the future belongs to the month before."""
        born_ms = month_start_ms + self.since_month_start_ms
        return born_ms if born_ms < now_ms else previous_month_start_ms + self.since_month_start_ms


def parse_unique_id(text: str) -> UniqueId:
    """Read a unique id in the format of official clients."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    address_bytes = len(raw) - _TAIL.size
    if address_bytes not in _ADDRESS_SIZES or len(text) != 2 * len(raw):
        raise BadField(f"{text[:64]!r} is not 32 or 56 hexadecimal digits", field="unique id")
    return UniqueId(raw[:address_bytes], *_TAIL.unpack_from(raw, address_bytes))
