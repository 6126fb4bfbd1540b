"""Options of a console: its listen address, its clusters and stores, and whether it may change them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitlog.access.credentials import Credentials
    from orbitlog.client.connection.client_tls import Tls

DEFAULT_PORT = 8082


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """A cluster that the console may connect to; no other address is ever dialled."""

    name: str
    address: str
    credentials: Credentials | None = field(default=None, repr=False)
    tls: Tls | None = None
    context: str = ""  # its name in the user's contexts, if it has one

    @property
    def has_identity(self) -> bool:
        """Return whether brokers know who connects: by credentials, or by a client certificate."""
        return self.credentials is not None or (self.tls is not None and bool(self.tls.cert_file))


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """Options of one console process."""

    data_directory: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    clusters: tuple[ClusterChoice, ...] = ()
    stores: Mapping[str, Path] = field(default_factory=dict)
    may_write: bool = False
    allows_sql: bool = False
    hides_bodies: bool = False  # from viewers
    public_url: str = ""
    requests_per_second: float = 20.0
    request_burst: int = 60
    stuck_after_seconds: float = 600.0
