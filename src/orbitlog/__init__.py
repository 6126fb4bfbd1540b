"""Orbitlog: Apache RocketMQ's message system in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitlog.client.connection.connect import connect as connect
    from orbitlog.client.connection.signature import Credentials as Credentials

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Loaded when it is first asked for: commands that need no client start without it.
    if name == "connect":
        from orbitlog.client.connection.connect import connect

        return connect
    if name == "Credentials":
        from orbitlog.client.connection.signature import Credentials

        return Credentials
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
