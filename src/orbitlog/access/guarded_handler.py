"""Guarded handler: calls a server's request handler for admitted requests only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

from orbitlog.access.access_control import AccessControl
from orbitlog.access.request_guard import AuthenticationFailed, RequestGuard
from orbitlog.access.request_needs import ADMINISTRATIVE_CODES
from orbitlog.access.request_signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from orbitlog.errors import RequestRefused
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command

SEND_CODES = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
# Requests whose handler needs the name of the account, for quotas and client ids. They are not relayed to clients.
NAMED_CODES = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.HEART_BEAT,
    )
)
VERIFIED = ""
"""Replaces the signature of an admitted send: the fast path compares every other field with those of earlier sends."""

A = TypeVar("A")


class Peer(Protocol):
    """The connection of a request."""

    remote_address: tuple[str, int]

    def on_close(self, callback: Callable[[Any], object]) -> None: ...

    def close(self) -> None: ...


P = TypeVar("P", bound=Peer)


def guarded_handler(
    access: AccessControl, handler: Callable[[P, Command], A], refuse_later: Callable[[RequestRefused, float], A]
) -> Callable[[P, Command], A]:
    """Return a handler that raises `RequestRefused` unless the guard admits the request.

    `refuse_later` returns the pending answer to a request that is refused after some seconds. Credentials are removed
    from admitted requests: some are relayed to other clients.
    """
    guard, quotas, failures = access.guard, access.quotas, access.failures

    def serve(connection: P, request: Command) -> A:
        fields, code = request.ext_fields, request.code
        try:
            name = guard.admit(code, fields, request.body, connection.remote_address[0])
        except AuthenticationFailed as error:
            delay_s = failures.add(connection.remote_address[0])
            if delay_s is None:
                connection.close()
            if not delay_s:
                raise
            return refuse_later(error, delay_s)
        if quotas.limits_connections:
            quotas.admit_connection(name, connection, connection.on_close)
        if name and code in SEND_CODES and SIGNATURE in fields:
            fields[SIGNATURE] = VERIFIED
        else:
            for field in (SIGNATURE, SECURITY_TOKEN, *(() if name and code in NAMED_CODES else (ACCESS_KEY,))):
                fields.pop(field, None)
        if code in ADMINISTRATIVE_CODES:
            return audited(guard, name, connection, request, handler)
        return handler(connection, request)

    return serve


def audited(guard: RequestGuard, name: str, connection: P, request: Command, handler: Callable[[P, Command], A]) -> A:
    """Call a handler; record that the request was answered with an error, if it was."""

    def note(answer: object) -> None:
        if isinstance(answer, Command) and answer.code != ResponseCode.SUCCESS:
            fail(answer.remark or f"response code {answer.code}")

    def fail(reason: str) -> None:
        guard.note_failure(name, request.code, connection.remote_address[0], reason)

    async def finish(pending: Awaitable[Any]) -> Any:
        try:
            answer = await pending
        except RequestRefused as error:
            fail(error.remark)
            raise
        note(answer)
        return answer

    try:
        answer = handler(connection, request)
    except RequestRefused as error:
        fail(error.remark)
        raise
    if isinstance(answer, Awaitable):
        return cast(A, finish(answer))
    note(answer)
    return answer
