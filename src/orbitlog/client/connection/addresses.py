"""Name server addresses: `rocketmq://host:port,host:port`, Java's `host:port;host:port`, IPv6 in brackets.

`rocketmqs://` stands for TLS.
"""

from __future__ import annotations

import re

from orbitlog.errors import ClientError

SCHEME = "rocketmq://"
SECURED_SCHEME = "rocketmqs://"
DEFAULT_PORT = 9876
_ADDRESSES_MAX = 64


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the name servers as `host:port`; raise `ClientError` if the text is not a valid address list.

    >>> parse_addresses("rocketmq://10.0.0.1,10.0.0.2:9999")
    ('10.0.0.1:9876', '10.0.0.2:9999')
    """
    if not isinstance(text, str):
        raise ClientError(f"an address must be a str, not {type(text).__name__}: {SCHEME}host:port,host:port")
    rest = text.strip().removeprefix(SCHEME).removeprefix(SECURED_SCHEME).rstrip("/")
    parts = [part for part in re.split(r"[,;\s]+", rest) if part]
    if not parts or len(parts) > _ADDRESSES_MAX:
        raise ClientError(f"{text[:80]!r} contains no name server; expected {SCHEME}127.0.0.1:{DEFAULT_PORT}")
    return tuple(map(_with_port, parts))


def is_secured(text: str) -> bool:
    """Return whether an address asks for TLS."""
    return text.strip().startswith(SECURED_SCHEME)


def _with_port(part: str) -> str:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?", part, re.ASCII)
    if match is None or int(match[2] or 0) > 65535:
        raise ClientError(f"{part[:80]!r} is not a valid host:port address")
    return f"{match[1]}:{match[2] or DEFAULT_PORT}"
