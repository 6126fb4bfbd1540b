"""Endpoints: one function of the console with its path, parameters, answer type and page; API and pages share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from orbitlog.console.console_state import Console
from orbitlog.console.session.console_roles import Role, Visitor
from orbitlog.console.sources.cluster_source import ClusterSource
from orbitlog.console.views.answers import Answer, ConsoleError, NoQuery

API_PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True)
class Call:
    """One request: its visitor, the words of its path and its decoded parameters."""

    console: Console
    visitor: Visitor
    path: Mapping[str, str]
    query: Any

    @property
    def cluster(self) -> ClusterSource:
        """The cluster that the path names; only configured ones exist."""
        source = self.console.clusters.get(self.path["cluster"])
        if source is None:
            known = ", ".join(self.console.clusters) or "none"
            raise ConsoleError(404, f"unknown cluster {self.path['cluster'][:80]!r}; this console has: {known}")
        return source


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
    visitor = call.visitor
    if visitor.role is Role.NONE:
        raise ConsoleError(401, "sign in first")
    # Without users every visitor on this machine may read, also the stores that the start named.
    needed = Role.VIEWER if endpoint.is_store and call.console.is_open else endpoint.role
    if visitor.role < needed:
        raise ConsoleError(403, f"this needs the role {needed.word}; you have the role {visitor.role.word}")
    return await endpoint.function(call)


def decode_query(kind: type[NoQuery], parameters: Mapping[str, str]) -> NoQuery:
    """Return the parameters of a request; raise `ConsoleError` for unknown or invalid ones."""
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    unknown = sorted(parameters.keys() - known)
    if unknown:
        allowed = ", ".join(sorted(known)) or "none"
        raise ConsoleError(400, f"unknown parameter {unknown[0][:80]!r}; parameters here: {allowed}")
    try:
        return msgspec.convert(dict(parameters), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConsoleError(400, f"invalid parameter: {error}") from None
