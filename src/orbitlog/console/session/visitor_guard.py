"""Guard before every request: host, size, rate, origin and session; and security headers on every response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from orbitlog.console.session.console_roles import Role, Visitor
from orbitlog.console.session.request_checks import is_known_host, is_safe_method, is_same_origin

if TYPE_CHECKING:
    from orbitlog.console.console_state import Console

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_BYTES_MAX = 1 << 20
COOKIE = "orbitlog"
SECURE_COOKIE = "__Host-orbitlog"
VISITOR = "orbitlog.visitor"
_STATIC = "/static/"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)


class VisitorGuard:
    """ASGI middleware around the console's application; `is_asset` returns whether a static file has a path."""

    def __init__(self, app: Application, console: Console, is_asset: Callable[[str], bool]) -> None:
        self._app = app
        self._console = console
        self._is_asset = is_asset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        is_secure = scope.get("scheme") == "https" or self._console.options.public_url.startswith("https:")
        send = _with_headers(send, is_static=scope["path"].startswith(_STATIC), is_secure=is_secure)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        scope[VISITOR] = self._visitor(headers)
        await self._app(scope, _limited(receive), send)

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        console = self._console
        if not is_known_host(headers.get("host", ""), console.options.public_url):
            return 421, "unknown host name: open the console by its address, or start it with --public-url"
        # After the host: nothing is counted for a page that reaches the console under a name of its own.
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > BODY_BYTES_MAX:
            return 413, f"the request is larger than {BODY_BYTES_MAX} bytes"
        client = scope.get("client") or ("", 0)
        # Static files cost nothing, and a page needs several; the error page for an unknown one is rendered.
        if not self._is_asset(scope["path"]) and not console.rate.allow(str(client[0])):
            return 429, "too many requests; wait a second"
        if is_safe_method(scope["method"]):
            return None
        if not is_same_origin(headers, console.options.public_url):
            return 403, "the request does not come from a page of this console"
        return None

    def _visitor(self, headers: dict[str, str]) -> Visitor:
        token = _cookie(headers.get("cookie", ""))
        visitor = self._console.sessions.find(token) if token else None
        if visitor is not None:
            return visitor
        return Visitor("", Role.VIEWER if self._console.is_open else Role.NONE)


def _cookie(text: str) -> str:
    """Return the session token of a Cookie header; empty if it has none.

    Values are not unquoted, because tokens are never quoted. `http.cookies` unquotes in quadratic time before Python
    3.11.10 and 3.12.6: one header of 32 KiB would stop the console for a second.
    """
    cookies = dict(_pair(part) for part in text.split(";"))
    # The `__Host-` cookie first: a page of a sibling domain can set the other one, but not this.
    return cookies.get(SECURE_COOKIE) or cookies.get(COOKIE, "")


def _pair(part: str) -> tuple[str, str]:
    name, _, value = part.partition("=")
    return name.strip(), value.strip()


def _with_headers(send: Send, *, is_static: bool, is_secure: bool) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), *SECURITY_HEADERS]
            if not is_static and not any(name == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            if is_secure:
                headers.append((b"strict-transport-security", b"max-age=31536000"))
            message = {**message, "headers": headers}
        await send(message)

    return send_with_headers


def _limited(receive: Receive) -> Receive:
    """Cut off a body without a stated length that grows beyond the limit."""
    received = 0

    async def receive_limited() -> MutableMapping[str, Any]:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > BODY_BYTES_MAX:
            return {"type": "http.disconnect"}
        return message

    return receive_limited


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = sentence.encode() + b"\n"
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
