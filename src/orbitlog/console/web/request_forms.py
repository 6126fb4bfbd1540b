"""Forms of requests: their fields, the CSRF token, and the client that sent them."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from orbitlog.console.session.console_sessions import is_csrf_token
from orbitlog.console.session.visitor_guard import VISITOR
from orbitlog.console.views.answers import ConsoleError

_FORM_FIELDS_MAX = 200


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; uploads are refused."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise ConsoleError(415, "forms are sent as application/x-www-form-urlencoded")
    body = await read_body(request)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FORM_FIELDS_MAX)
    except ValueError:
        raise ConsoleError(400, f"the form is not valid; it has at most {_FORM_FIELDS_MAX} fields") from None
    return dict(pairs)


async def read_body(request: Request) -> bytes:
    """Return the body of a request; raise `ConsoleError` if it is larger than the guard allows."""
    try:
        return await request.body()
    except ClientDisconnect:
        raise ConsoleError(413, "the request is too large") from None


def require_csrf(request: Request, fields: dict[str, str]) -> None:
    """Raise `ConsoleError` unless the request carries the CSRF token of its session."""
    given = request.headers.get("x-csrf-token") or fields.get("csrf", "")
    if not is_csrf_token(request.scope[VISITOR], given):
        raise ConsoleError(403, "the form has expired; reload the page")


def client_address(request: Request) -> str:
    """Return the address of the client, for limits and the audit log."""
    return request.client.host if request.client else ""


def client_browser(request: Request) -> str:
    """Return the name that the browser gives itself, for the audit log."""
    return request.headers.get("user-agent", "")[:200]
