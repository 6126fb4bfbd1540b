"""Name server lookup: every address of the host names in `namesrvAddr`, for name servers that share one name.

Mirrors `BrokerOuterAPI.dnsLookupAddressByDomain`, which looks up one name only.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from orbitlog.settings.listen_exposure import join_address


class NameServerLookup:
    """Resolves name servers; keeps the last addresses of a name while it cannot be resolved."""

    def __init__(self) -> None:
        self._resolved: dict[str, tuple[str, ...]] = {}

    async def addresses(self, name_servers: Iterable[str]) -> tuple[str, ...]:
        """Return the addresses of all `host:port`, each once; a name that was never resolved is returned as it is."""
        for name_server in name_servers:
            host, _, port = name_server.rpartition(":")
            try:
                answers = await asyncio.to_thread(
                    socket.getaddrinfo, host.strip("[]"), int(port), type=socket.SOCK_STREAM
                )
            except (OSError, UnicodeError):
                continue
            self._resolved[name_server] = tuple(join_address(str(answer[4][0]), int(port)) for answer in answers)
        found = (address for each in name_servers for address in self._resolved.get(each, (each,)))
        return tuple(dict.fromkeys(found))
