"""Request and error ids: what an error answer and the log of the server have in common.

Texts of internal errors contain paths, class names and bytes of other clients. A peer gets an id instead, and an
operator finds the cause by it. The id of a request follows from its connection and its opaque number, so that every
part of the server can compute it when it needs one, and no request pays for it otherwise.
"""

from __future__ import annotations

import logging
import os
from zlib import crc32

from orbitlog.errors import BadExpression, FormatError, OrbitlogError, RequestRefused, WireError
from orbitlog.wire.codes import RequestCode, ResponseCode
from orbitlog.wire.command import Command, response_to

log = logging.getLogger(__name__)

REQUEST_ID = "requestId"
"""Field of error answers."""
_PROCESS = os.urandom(8).hex()
# About the request or its answer alone: the peer can act on the text, and it contains nothing of the server.
_ABOUT_THE_REQUEST = (BadExpression, FormatError, WireError)
# Answers of every day, such as the lookup of a topic that does not exist yet: they get an id, and no line.
_USUAL = frozenset(
    (
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND, ResponseCode.NO_MESSAGE),
        *(ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        *(ResponseCode.SUBSCRIPTION_NOT_LATEST, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        *(ResponseCode.FILTER_DATA_NOT_EXIST, ResponseCode.FILTER_DATA_NOT_LATEST),
    )
)


def request_id(peer: str, opaque: int) -> str:
    """Return the id of a request: eight hexadecimal digits."""
    return f"{crc32(f'{_PROCESS} {peer} {opaque}'.encode()):08x}"


def request_name(code: int) -> str:
    """Return the name of a request code, or its number if it is unknown."""
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def refusal_answer(peer: str, request: Command, error: RequestRefused) -> Command:
    """Return the answer to a request that a handler refused; log it unless such answers are usual."""
    number = request_id(peer, request.opaque)
    if error.code not in _USUAL:
        log.info(
            "request %s refused: %s of %s: %s (code %d)",
            *(number, request_name(request.code), peer, error.remark, error.code),
            extra={
                "event": "request_refused",
                "fields": {"request_id": number, "request_code": int(request.code), "client": peer},
            },
        )
    return response_to(request, error.code, error.remark, {REQUEST_ID: number})


def failed_answer(peer: str, request: Command, error: Exception) -> Command:
    """Return the answer to a request whose handler failed, and log the error under the id of the request."""
    number = request_id(peer, request.opaque)
    remark = error_remark(error, "request %s of %s failed", request_name(request.code), peer, error_id=number)
    return response_to(request, ResponseCode.SYSTEM_ERROR, remark, {REQUEST_ID: number})


def error_remark(error: BaseException, what: str, *values: object, error_id: str = "") -> str:
    """Return the remark about an error for a peer, and log the error; `what` is a log message with `values`.

    Without the id of a request the error gets one of its own.
    """
    if isinstance(error, _ABOUT_THE_REQUEST):
        log.warning(f"{what}: %s", *values, error)
        return str(error)
    error_id = error_id or os.urandom(4).hex()
    extra = {"event": "request_failed", "fields": {"request_id": error_id}}
    if isinstance(error, OrbitlogError):
        log.warning(f"error {error_id}: {what}: %s", *values, error, extra=extra)
    else:
        log.error(f"error {error_id}: {what}", *values, exc_info=error, extra=extra)
    return f"internal error {error_id}; the log of the server has the cause under this id"
