"""Request dispatch: calls the handler of each request code, and refuses unknown codes at once.

A 5.x tool tries which codes a server supports; without a response each try would take its timeout of seconds. Mirrors
Java `NettyRemotingAbstract.processRequestCommand`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from orbitlog.remoting.connection import Answer, Connection, Handler
from orbitlog.wire.codes import ResponseCode
from orbitlog.wire.command import Command, response_to


class Dispatch:
    """A handler that calls other handlers by request code."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = {int(code): handler for code, handler in handlers.items()}

    def __call__(self, connection: Connection, request: Command) -> Answer | Awaitable[Answer]:
        handler = self._handlers.get(request.code)
        return not_supported(request) if handler is None else handler(connection, request)


def not_supported(request: Command) -> Command:
    """Return the response to a code that is unknown or switched off."""
    remark = f" request type {request.code} not supported"
    return response_to(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
