"""Listen exposure: whether other machines can connect to an address that a server listens on, and what they may do."""

from __future__ import annotations

import ipaddress
import socket
from enum import StrEnum


class AnonymousAccess(StrEnum):
    """What a broker serves to clients of other machines without access control (`allowAnonymous`)."""

    NONE = "false"
    """Nothing: the broker does not start."""
    CLIENTS = "clients"
    """Requests of producers and consumers; administrative requests are refused."""
    ALL = "true"


def parse_anonymous_access(text: str) -> AnonymousAccess:
    """Parse `false`, `clients` or `true`."""
    try:
        return AnonymousAccess(text.lower())
    except ValueError:
        raise ValueError("is not one of false, clients, true") from None


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
