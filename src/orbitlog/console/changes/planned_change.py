"""Planned changes: what would change, before and after, and the function that carries the plan out.

The id of a plan is a hash of the request and of the state that was read. It is valid once, for some minutes, and only
while the state stays the same: otherwise the caller gets the new plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from orbitlog.console.console_call import Call
from orbitlog.console.session.console_roles import Role
from orbitlog.console.views.answers import Answer

LINES_SHOWN = 500
_ID_CHARACTERS = 24


class ChangeRequest(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Base of the fields of a change."""


class PlanLine(Answer, kw_only=True):
    """One thing that changes: its value before and after; None if it does not exist."""

    what: str
    before: str | None
    after: str | None


def changed_fields(broker_name: str, before: Mapping[str, str] | None, after: Mapping[str, str]) -> list[PlanLine]:
    """Return a line for each field that a broker's entry gets or changes; `before` is None if the entry is new."""
    old = before or {}
    return [
        PlanLine(what=f"{broker_name} {name}", before=old.get(name), after=value)
        for name, value in after.items()
        if old.get(name) != value
    ]


class ChangePlan(Answer, kw_only=True):
    """The dry run of a change. With `confirm`, that text must be given to carry it out."""

    plan_id: str
    action: str
    target: str
    sentence: str
    lines: list[PlanLine]
    left_out: int
    warnings: list[str]
    confirm: str
    is_empty: bool


class ResultLine(Answer, kw_only=True):
    """The result of one part of a change."""

    what: str
    done: bool
    result: str


class ChangeResult(Answer, kw_only=True):
    """A change that was carried out; `done` is false if a part failed. Long ones continue as a job."""

    action: str
    target: str
    done: bool
    lines: list[ResultLine]
    left_out: int = 0
    job: str | None = None


@dataclass(frozen=True)
class PreparedChange:
    """A plan and the function that carries it out; `state` is what must not change in between."""

    action: str
    target: str
    sentence: str
    lines: list[PlanLine]
    apply: Callable[[], Awaitable[list[ResultLine]]]
    confirm: str = ""
    warnings: list[str] = field(default_factory=list)
    state: Any = None
    starts_job: bool = False

    def plan_id(self, call: Call) -> str:
        """Return the id of this plan for this visitor and request."""
        state = [[line.what, line.before, line.after] for line in self.lines] if self.state is None else self.state
        identity = [self.action, self.target, dict(call.path), call.query, state, call.visitor.session_id]
        return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()[:_ID_CHARACTERS]

    def plan(self, call: Call) -> ChangePlan:
        return ChangePlan(
            plan_id=self.plan_id(call),
            action=self.action,
            target=self.target,
            sentence=self.sentence,
            lines=self.lines[:LINES_SHOWN],
            left_out=max(0, len(self.lines) - LINES_SHOWN),
            warnings=self.warnings,
            confirm=self.confirm,
            is_empty=not self.lines,
        )


@dataclass(frozen=True, slots=True)
class ChangeKind:
    """A change: its route in the API, its page, its fields, the role it needs, and the function that plans it."""

    method: str
    path: str
    page: str
    name: str
    summary: str
    request: type[ChangeRequest]
    prepare: Callable[[Call], Awaitable[PreparedChange]]
    title: str
    section: str
    role: Role = Role.OPERATOR
