"""Carries out changes: checks role and plan, writes the audit line, changes, and completes the audit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from orbitlog.console.changes.planned_change import (
    LINES_SHOWN,
    ChangeKind,
    ChangePlan,
    ChangeResult,
    PreparedChange,
    ResultLine,
)
from orbitlog.console.console_call import Call, require_role
from orbitlog.console.sources.server_problems import problem_sentence
from orbitlog.console.views.answers import ConsoleError
from orbitlog.errors import OrbitlogError

_AUDITED_LINES = 50


class PlanChanged(ConsoleError):
    """A plan that may not be carried out (any more), with the plan of the current state."""

    def __init__(self, sentence: str, plan: ChangePlan) -> None:
        super().__init__(409, sentence)
        self.plan = plan


@dataclass(frozen=True, slots=True)
class Requester:
    """Address and browser of a visitor, for the audit log."""

    address: str
    browser: str


async def plan_change(kind: ChangeKind, call: Call) -> ChangePlan:
    """Return the dry run of a change; nothing is changed."""
    require_role(call.visitor, kind.role)
    prepared = await kind.prepare(call)
    plan = prepared.plan(call)
    call.console.plans.add(plan.plan_id)
    return plan


async def carry_out(kind: ChangeKind, call: Call, plan_id: str, confirm: str, requester: Requester) -> ChangeResult:
    """Carry out a plan that was shown; raise `PlanChanged` if the state is not the one of that plan."""
    require_role(call.visitor, kind.role)
    prepared = await kind.prepare(call)
    if prepared.plan_id(call) != plan_id:
        raise _changed(call, prepared, "the state has changed since this plan was made: read the new plan")
    if prepared.confirm and confirm != prepared.confirm:
        raise ConsoleError(400, f"to confirm, give the name {prepared.confirm[:255]!r} exactly")
    if not prepared.lines:
        raise ConsoleError(400, "the plan is empty: nothing would change")
    # Last, so that a wrong confirmation does not use the plan up. Of two requests with one plan only one gets it.
    if not call.console.plans.take(plan_id):
        raise _changed(call, prepared, "this plan has expired or was carried out already: read the new plan")
    audit = _Audit(call, prepared, plan_id, requester)
    await audit.write("started")  # before the change: one that the console does not survive is recorded as well
    result, reason = "interrupted", ""
    try:
        lines = await prepared.apply()
        failed = [line for line in lines if not line.done]
        result, reason = "failed in part" if failed else "done", "; ".join(line.result for line in failed[:5])
    except OrbitlogError as error:
        result, reason = "failed", problem_sentence(error)
        raise
    finally:
        await audit.write(result, reason)
    return _result(prepared, lines)


def _changed(call: Call, prepared: PreparedChange, sentence: str) -> PlanChanged:
    plan = prepared.plan(call)
    call.console.plans.add(plan.plan_id)
    return PlanChanged(sentence, plan)


def _result(prepared: PreparedChange, lines: list[ResultLine]) -> ChangeResult:
    return ChangeResult(
        action=prepared.action,
        target=prepared.target,
        done=all(line.done for line in lines),
        lines=lines[:LINES_SHOWN],
        left_out=max(0, len(lines) - LINES_SHOWN),
        job=lines[0].result if prepared.starts_job and lines else None,
    )


@dataclass(frozen=True, slots=True)
class _Audit:
    """The audit lines of one change."""

    call: Call
    prepared: PreparedChange
    plan_id: str
    requester: Requester

    async def write(self, result: str, reason: str = "") -> None:
        call, prepared = self.call, self.prepared
        shown = prepared.lines[:_AUDITED_LINES]
        await asyncio.to_thread(
            call.console.audit.write,
            user=call.visitor.name,
            role=call.visitor.role.word,
            address=self.requester.address,
            browser=self.requester.browser,
            cluster=call.path.get("cluster") or call.path.get("store", ""),
            action=prepared.action,
            target=prepared.target,
            before={line.what: line.before for line in shown},
            after={line.what: line.after for line in shown},
            lines=len(prepared.lines),
            planId=self.plan_id,
            result=result,
            reason=reason,
        )
