"""Client ids and unique message ids.

Mirrors Java `ClientConfig.buildMQClientId` and `MessageClientIDSetter`.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

from orbitlog.remoting.unique_ids import UniqueIds


def local_address() -> str:
    """Return the address of this host on its default route; loopback if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(
                ("192.0.2.1", 9)
            )  # a documentation address (RFC 5737): connecting a datagram socket sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def make_client_id(instance: str | None = None) -> str:
    """Return a unique client id: brokers would assign the same queues to two clients of one id."""
    return f"{local_address()}@{instance or f'{os.getpid()}#{secrets.token_hex(4)}'}"


class UniqueIdMaker:
    """Generator of unique message ids that contain the address of this host."""

    def __init__(self) -> None:
        self._ids = UniqueIds()
        self._address = socket.inet_aton(local_address())

    def make(self) -> str:
        return self._ids.make(self._address, time.time_ns() // 1_000_000)

    def make_many(self, count: int) -> list[str]:
        """Return `count` ids with the same timestamp."""
        now_ms, make, address = time.time_ns() // 1_000_000, self._ids.make, self._address
        return [make(address, now_ms) for _ in range(count)]
