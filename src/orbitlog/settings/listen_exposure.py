"""Listen addresses: their text, whether other machines can connect to them, and what they may do then."""

from __future__ import annotations

import ipaddress
import socket
from enum import StrEnum

# Addresses that stand for all interfaces, and the one at which this machine reaches a server that listens on them.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - compared, not listened on


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


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IPv4 or IPv6 address instead of a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def host_in_url(host: str) -> str:
    """Return a host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def join_address(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 host in brackets."""
    return f"{host_in_url(host)}:{port}"


def reachable_host(host: str) -> str:
    """Return an address at which a server that listens on `host` can be reached from this machine."""
    return _EVERYWHERE.get(host, host)
