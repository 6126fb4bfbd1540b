"""Sign-in and sign-out: by name and password, or by the one-time token in the address that the start prints."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role, Visitor
from orbitlog.console.session.visitor_guard import COOKIE, SECURE_COOKIE, VISITOR
from orbitlog.console.web.page_rendering import PageRenderer
from orbitlog.console.web.request_forms import client_address, client_browser, read_form, require_csrf

LOCAL_ADMIN = "local admin"


class SignIn:
    """The pages /sign-in and /sign-out."""

    def __init__(self, console: Console, renderer: PageRenderer) -> None:
        self._console = console
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [
            Route("/sign-in", self._form, methods=["GET"]),
            Route("/sign-in", self._submit, methods=["POST"]),
            Route("/sign-out", self._sign_out, methods=["POST"]),
        ]

    async def _form(self, request: Request) -> Response:
        token = request.query_params.get("token")
        if token is None:
            return self._page(request, None, 200)
        client = client_address(request)
        failed = self._console.failed_sign_ins
        if self._console.takes_token and not failed.wait_seconds(client) and self._console.one_time_token.take(token):
            return self._signed_in(request, LOCAL_ADMIN, Role.ADMIN)
        failed.add(client)
        return self._page(request, "this address was used already, or belongs to another start of the console", 403)

    async def _submit(self, request: Request) -> Response:
        fields = await read_form(request)
        name, password = fields.get("name", "")[:100], fields.get("password", "")
        failed, client = self._console.failed_sign_ins, client_address(request)
        # By name and by address: many addresses may try one user, and one address may try many users.
        wait = failed.wait_seconds(f"name {name}", client)
        if wait:
            return self._page(request, f"too many failed attempts; wait {wait:.0f} s", 429)
        # In a thread: scrypt takes its time on purpose, and all pages share the event loop.
        user = await asyncio.to_thread(self._console.users.verify, name, password)
        facts = {"action": "sign in", "user": name, "address": client, "browser": client_browser(request)}
        if user is None:
            failed.add(f"name {name}", client)
            self._console.audit.write(**facts, result="refused")
            return self._page(request, "name or password is wrong", 403)
        failed.forget(f"name {name}")  # not the address: one valid account must not allow guesses at others
        self._console.audit.write(**facts, result="done")
        return self._signed_in(request, user.name, user.role)

    async def _sign_out(self, request: Request) -> Response:
        visitor: Visitor = request.scope[VISITOR]
        fields = await read_form(request)
        require_csrf(request, fields)
        self._console.sessions.end(visitor)
        response = RedirectResponse("/sign-in", 303)
        for name in (COOKIE, SECURE_COOKIE):
            response.delete_cookie(name, path="/", secure=name == SECURE_COOKIE, httponly=True, samesite="strict")
        return response

    def _signed_in(self, request: Request, name: str, role: Role) -> Response:
        """Open a session with a token of its own: a token that the browser sent before is never continued."""
        self._console.sessions.end(request.scope[VISITOR])
        token, _ = self._console.sessions.create(name, role)
        response = RedirectResponse("/", 303)
        is_secure = request.url.scheme == "https" or self._console.options.public_url.startswith("https:")
        response.set_cookie(
            SECURE_COOKIE if is_secure else COOKIE,
            token,
            path="/",
            secure=is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    def _page(self, request: Request, problem: str | None, status: int) -> Response:
        values = {
            "problem": problem,
            "has_users": not self._console.takes_token,
            "is_open": self._console.is_open,
        }
        return self._renderer.page(request, "sign_in.html", values, title="Sign in", status=status)
