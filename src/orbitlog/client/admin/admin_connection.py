"""A connection for administration alone: no producer, no consumer, no heartbeats, and half of the start-up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from orbitlog.client.admin.administration import Administration
from orbitlog.client.connection.addresses import parse_addresses
from orbitlog.client.connection.cluster_link import ClusterLink
from orbitlog.client.connection.routes import Routes
from orbitlog.remoting.connection import Answer, Connection
from orbitlog.remoting.request_dispatch import not_supported
from orbitlog.wire.command import Command

if TYPE_CHECKING:
    from orbitlog.client.connection.signature import Credentials


@asynccontextmanager
async def administer(address: str, *, credentials: Credentials | None = None) -> AsyncIterator[Administration]:
    """Administer the cluster whose name servers are at `address`; nothing is dialled before something is asked."""
    link = ClusterLink(parse_addresses(address), _refuse, credentials)
    try:
        yield Administration(link, Routes(link))
    finally:
        await link.close()


def _refuse(_: Connection, request: Command) -> Answer:
    return not_supported(request)
