"""Listen exposure: whether other machines can connect to an address that a server listens on."""

from __future__ import annotations

import ipaddress
import socket


def is_exposed(host: str) -> bool:
    """Return whether an address or host name is not a loopback one; an empty one stands for all addresses."""
    try:
        return not ipaddress.ip_address(host or "0.0.0.0").is_loopback  # noqa: S104 - compared, not bound
    except ValueError:
        pass
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True  # unknown: the safe side
    addresses = [str(address[0]).partition("%")[0] for *_, address in answers]
    return any(not ipaddress.ip_address(address).is_loopback for address in addresses)
