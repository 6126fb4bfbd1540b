"""Guarded handler: calls a server's request handler for admitted requests only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from orbitlog.access.request_guard import RequestGuard
from orbitlog.access.request_signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from orbitlog.wire.codes import RequestCode
from orbitlog.wire.command import Command

SEND_CODES = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
VERIFIED = ""
"""Replaces the signature of an admitted send: the fast path compares every other field with those of earlier sends."""

A = TypeVar("A")


class Peer(Protocol):
    """The connection of a request."""

    remote_address: tuple[str, int]


P = TypeVar("P", bound=Peer)


def guarded_handler(guard: RequestGuard, handler: Callable[[P, Command], A]) -> Callable[[P, Command], A]:
    """Return a handler that raises `RequestRefused` unless the guard admits the request.

    Credentials are removed from admitted requests: some are relayed to other clients.
    """

    def serve(connection: P, request: Command) -> A:
        fields = request.ext_fields
        guard.admit(request.code, fields, request.body, connection.remote_address[0])
        if request.code in SEND_CODES and SIGNATURE in fields:
            fields[SIGNATURE] = VERIFIED
        else:
            for name in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN):
                fields.pop(name, None)
        return handler(connection, request)

    return serve
