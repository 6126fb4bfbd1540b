"""Who a client is: its id in the cluster, and the unique ids that it gives to its messages.

Mirrors Java `ClientConfig.buildMQClientId` and `MessageClientIDSetter`.
"""

from __future__ import annotations

import os
import secrets
import socket
import time

from orbitlog.remoting.unique_ids import UniqueIds


def local_address() -> str:
    """The address of this machine by which others most likely know it; loopback if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address: nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def make_client_id(instance: str | None = None) -> str:
    """Return an id that no other client has: two with one id would take each other's queues."""
    return f"{local_address()}@{instance or f'{os.getpid()}#{secrets.token_hex(4)}'}"


class UniqueIdMaker:
    """Gives ids to the messages of this machine."""

    def __init__(self) -> None:
        self._ids = UniqueIds()
        self._address = socket.inet_aton(local_address())

    def make(self) -> str:
        return self._ids.make(self._address, time.time_ns() // 1_000_000)

    def make_many(self, count: int) -> list[str]:
        """Return so many, of one moment."""
        now_ms, make, address = time.time_ns() // 1_000_000, self._ids.make, self._address
        return [make(address, now_ms) for _ in range(count)]
