"""Where a cluster is: `rocketmq://host:port,host:port`, `host:port;host:port` as Java writes it, IPv6 in brackets."""

from __future__ import annotations

import re

from orbitlog.errors import ClientError

SCHEME = "rocketmq://"
DEFAULT_PORT = 9876
_ADDRESSES_MAX = 64


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the name servers as `host:port`; raises `ClientError` for what is no address.

    >>> parse_addresses("rocketmq://10.0.0.1,10.0.0.2:9999")
    ('10.0.0.1:9876', '10.0.0.2:9999')
    """
    if not isinstance(text, str):
        raise ClientError(f"an address is text, not {type(text).__name__}: {SCHEME}host:port,host:port")
    rest = text.strip().removeprefix(SCHEME).rstrip("/")
    parts = [part for part in re.split(r"[,;\s]+", rest) if part]
    if not parts or len(parts) > _ADDRESSES_MAX:
        raise ClientError(f"{text[:80]!r} names no name server; write {SCHEME}127.0.0.1:{DEFAULT_PORT}")
    return tuple(map(_with_port, parts))


def _with_port(part: str) -> str:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::([0-9]{1,5}))?", part, re.ASCII)
    if found is None or int(found[2] or 0) > 65535:
        raise ClientError(f"{part[:80]!r} is no address of the form host:port")
    return f"{found[1]}:{found[2] or DEFAULT_PORT}"
