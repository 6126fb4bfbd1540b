"""Endpoints: one function of the console with its path, parameters, answer type and page; API and pages share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from orbitlog.console.console_call import Call, require_role
from orbitlog.console.session.console_roles import Role
from orbitlog.console.views.answers import Answer, ConsoleError, NoQuery

API_PREFIX = "/api/v1"
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route of the API, and of a page if it has a template."""

    path: str
    name: str
    summary: str
    answer: type[Answer]
    function: Callable[[Call], Awaitable[Answer]]
    query: type[NoQuery] = NoQuery
    template: str | None = None
    title: str = ""
    section: str = ""
    role: Role = Role.VIEWER
    is_live: bool = True
    is_store: bool = False


async def run_endpoint(endpoint: Endpoint, call: Call) -> Answer:
    """Check the role, and return the answer; raise `ConsoleError` if the visitor may not have it."""
    # Without users every visitor on this machine may read, also the stores that the start named.
    require_role(call.visitor, Role.VIEWER if endpoint.is_store and call.console.is_open else endpoint.role)
    return await endpoint.function(call)


def decode_query(kind: type[NoQuery], parameters: Mapping[str, str]) -> NoQuery:
    """Return the parameters of a request, empty ones as left out; raise `ConsoleError` for invalid ones."""
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    unknown = sorted(parameters.keys() - known)
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        raise ConsoleError(400, f"unknown parameter {unknown[0][:80]!r}; parameters here: {allowed}")
    try:
        return msgspec.convert({name: text for name, text in parameters.items() if text}, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConsoleError(400, f"invalid parameter: {error}") from None
