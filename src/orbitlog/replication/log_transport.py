"""Transports that carry the CommitLog: how much is written at once, and the peer's address."""

from __future__ import annotations

import asyncio
from typing import cast

# Bytes handed to the transport in one turn of the loop: other connections are served in between.
TURN_BYTES = 512 * 1024
TRANSFERS_PER_READ_MAX = 4096
"""A read has at most 256 KiB, and a transfer at least one message, or it is one of few heartbeats."""
_UNSENT_BYTES_MAX = 4 * 1024 * 1024


def open_transport(transport: asyncio.BaseTransport) -> tuple[asyncio.Transport, str]:
    """Return a transport that pauses writing when a turn's bytes are unsent, and the peer as `host:port`."""
    opened = cast(asyncio.Transport, transport)  # uvloop's transports do not inherit from it
    opened.set_write_buffer_limits(_UNSENT_BYTES_MAX)
    host, port = opened.get_extra_info("peername")[:2]
    return opened, f"{host}:{port}"
