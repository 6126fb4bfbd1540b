"""Request dispatch: calls the handler of each request code, and refuses unknown codes at once.

A 5.x tool tries which codes a server supports; without a response each try would take its timeout of seconds. Mirrors
Java `NettyRemotingAbstract.processRequestCommand`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Mapping

from orbitlog.errors import RequestRefused
from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to

log = logging.getLogger(__name__)


class Dispatch:
    """A handler that calls other handlers by request code."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = {int(code): handler for code, handler in handlers.items()}

    def __call__(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        handler = self._handlers.get(request.code)
        return not_supported(request) if handler is None else handler(connection, request)


def without_administration(handlers: Mapping[int, Handler], server: str, address: str) -> dict[int, Handler]:
    """Return handlers that refuse administrative requests: of a server that other machines reach without credentials.

    `server` and `address` are named in the answer, which Apache's tools print.
    """
    from orbitlog.wire.administrative import is_administrative  # servers on loopback need no table

    remark = (
        f"administrative requests are refused: this {server} listens on {address} without access control; switch it on"
        " (authenticationEnabled, aclEnable), or set allowAnonymous=true to serve them to every client"
    )

    counted = itertools.count(1)

    def refuse(connection: Connection, request: Command) -> Answer:
        # Thinned: a peer that repeats a refused request must not fill the log.
        count = next(counted)
        if count & (count - 1) == 0:
            log.warning("refused administrative request %d of %s (%d so far)", request.code, connection.peer, count)
        return response_to(request, ResponseCode.NO_PERMISSION, remark)

    return {code: refuse if is_administrative(code) else handler for code, handler in handlers.items()}


def warn_of_open_access(server: str, address: str, *, allows_anonymous: bool) -> None:
    """Log what clients on other machines can do without credentials."""
    if allows_anonymous:
        log.warning(
            "%s listens on %s without access control and allowAnonymous=true: every client can read, write, change"
            " and delete",
            *(server, address),
        )
    else:
        log.warning(
            "%s listens on %s without access control: every client can send and consume; administrative requests are"
            " refused until allowAnonymous=true is set",
            *(server, address),
        )


def not_supported(request: Command) -> Command:
    """Return the response to a code that is unknown or switched off."""
    remark = f" request type {request.code} not supported"
    return response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


async def refuse_later(error: RequestRefused, delay_s: float) -> Answer:
    """Refuse a request after some seconds: the peer fails to authenticate too often."""
    await asyncio.sleep(delay_s)
    raise error
