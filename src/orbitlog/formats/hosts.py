"""An address and port as records keep them: 4 or 16 address bytes, then the port as i32."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from orbitlog.errors import BadField

IPV4_HOST_BYTES = 8
IPV6_HOST_BYTES = 20


class Host(NamedTuple):
    """A socket address; `address` is 4 bytes (IPv4) or 16 (IPv6).

    A named tuple, not a dataclass: two are made for every record decoded, and this one costs half as much.
    """

    address: bytes
    port: int

    @property
    def is_ipv6(self) -> bool:
        return len(self.address) == 16

    @property
    def ip(self) -> str:
        """The address as Java prints it: IPv6 in its long form, eight groups and no `::`."""
        if not self.is_ipv6:
            return ".".join(map(str, self.address))
        return ":".join(f"{self.address[i] << 8 | self.address[i + 1]:x}" for i in range(0, 16, 2))

    def __str__(self) -> str:
        return f"{self.ip}:{self.port}"

    def encode(self) -> bytes:
        return self.address + self.port.to_bytes(4, "big", signed=True)


def decode_host(raw: bytes) -> Host:
    """Split 8 or 20 bytes into address and port."""
    assert len(raw) in (IPV4_HOST_BYTES, IPV6_HOST_BYTES)
    return Host(raw[:-4], int.from_bytes(raw[-4:], "big", signed=True))


def parse_host(text: str) -> Host:
    """Read `ip:port`; IPv6 in any form, with or without brackets."""
    ip, separator, port = text.rpartition(":")
    try:
        if not separator or not port.isascii() or not port.isdecimal() or int(port) > 65535:
            raise ValueError
        return Host(ipaddress.ip_address(ip.strip("[]")).packed, int(port))
    except ValueError:
        raise BadField(f"{text!r} is not ip:port", field="host") from None
