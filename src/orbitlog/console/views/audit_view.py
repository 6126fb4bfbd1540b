"""The newest lines of the console's audit log."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from orbitlog.console.session.console_audit import ConsoleAudit
from orbitlog.console.views.answers import Answer, NoQuery


class AuditQuery(NoQuery, kw_only=True):
    """The number of lines."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class AuditRow(Answer, kw_only=True):
    """One line: a sign-in, or the start or result of a change."""

    at: int
    user: str
    role: str
    address: str
    cluster: str
    action: str
    target: str
    result: str
    reason: str
    before: dict[str, Any] = msgspec.field(default_factory=dict)
    after: dict[str, Any] = msgspec.field(default_factory=dict)


class AuditListing(Answer, kw_only=True):
    """Audit lines, newest first."""

    items: list[AuditRow]
    as_of: int


def list_audit(audit: ConsoleAudit, query: AuditQuery, now_ms: int) -> AuditListing:
    return AuditListing(items=[_row(line) for line in audit.newest(query.limit)], as_of=now_ms)


def _row(line: dict[str, Any]) -> AuditRow:
    def word(name: str) -> str:
        return str(line.get(name) or "")

    def table(name: str) -> dict[str, Any]:
        value = line.get(name)
        return value if isinstance(value, dict) else {}

    at = line.get("at")
    return AuditRow(
        at=at if isinstance(at, int) else 0,
        user=word("user"),
        role=word("role"),
        address=word("address"),
        cluster=word("cluster"),
        action=word("action"),
        target=word("target"),
        result=word("result"),
        reason=word("reason"),
        before=table("before"),
        after=table("after"),
    )
