"""Certificate sender: requests without credentials from a connection whose certificate names a user.

Such a request is signed here, with the secret of that user, and then verified like any other: the guard has one way to
admit requests. A disabled or unknown user is refused, and policies apply as if the client had signed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from orbitlog.access.request_guard import RequestGuard
from orbitlog.access.request_signature import ACCESS_KEY, SIGNATURE, FieldOrder
from orbitlog.wire.command import Command

A = TypeVar("A")


class CertifiedPeer(Protocol):
    """The connection of a request."""

    remote_address: tuple[str, int]
    certificate_name: str


P = TypeVar("P", bound=CertifiedPeer)


def named_by_certificate(guard: RequestGuard, handler: Callable[[P, Command], A]) -> Callable[[P, Command], A]:
    """Return a handler that gives unsigned requests the user of the connection's certificate, if it names one."""
    order = FieldOrder()

    def serve(connection: P, request: Command) -> A:
        name = connection.certificate_name
        fields = request.ext_fields
        if name and not fields.get(ACCESS_KEY):  # the C++ client sends an empty one if it has no credentials
            fields[ACCESS_KEY] = name
            account = guard.policy.accounts.get(name)
            if account is not None:
                fields[SIGNATURE] = account.key.sign(order.content(fields), request.body).decode()
        return handler(connection, request)

    return serve
