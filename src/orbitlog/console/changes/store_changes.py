"""Changes of stores: repair, and rebuild of derived files, by `orbitlog doctor` in a child process."""

from __future__ import annotations

from typing import Literal

from orbitlog.console.changes.planned_change import ChangeRequest, PlanLine, PreparedChange, ResultLine
from orbitlog.console.console_call import Call
from orbitlog.console.explorer.repair_view import PLAN_SECONDS, doctor_result, plan_store_repair
from orbitlog.console.explorer.store_reading import store_path
from orbitlog.console.work.background_jobs import Job

_APPLY_SECONDS = 3600.0


class RepairRequest(ChangeRequest, kw_only=True):
    """No fields."""


class RebuildRequest(ChangeRequest, kw_only=True):
    """The derived files to rebuild from the log."""

    what: Literal["queues", "index", "checkpoint"] = "queues"


async def prepare_repair(call: Call) -> PreparedChange:
    name, stores = call.path["store"], dict(call.console.options.stores)
    path = store_path(stores, name)
    plan = await plan_store_repair(stores, name)

    async def apply() -> list[ResultLine]:
        job = call.console.jobs.submit(
            "repair", f"repair store {name}", call.visitor.name, lambda job: _run(job, "repair", str(path), "--apply")
        )
        return [ResultLine(what="job", done=True, result=job.id)]

    return PreparedChange(
        action="repair store",
        target=name,
        sentence=f"repair the store {path}; `orbitlog doctor undo` takes every change back",
        lines=[
            PlanLine(what=f"step {number}", before="as found", after=step) for number, step in enumerate(plan.steps, 1)
        ],
        apply=apply,
        confirm=name,
        warnings=[*(f"not repaired: {problem}" for problem in plan.problems[:20]), *_WARNINGS],
        starts_job=True,
    )


_WARNINGS = ("the repair refuses to start while a broker uses the store",)


async def prepare_rebuild(call: Call) -> PreparedChange:
    name, what = call.path["store"], call.query.what
    path = store_path(dict(call.console.options.stores), name)
    report = await doctor_result("rebuild", str(path), f"--{what}", "--dry-run", seconds=PLAN_SECONDS)
    found = report.get("findings") or ()

    async def apply() -> list[ResultLine]:
        title = f"rebuild {what} of store {name}"
        job = call.console.jobs.submit(
            "rebuild", title, call.visitor.name, lambda job: _run(job, "rebuild", str(path), f"--{what}")
        )
        return [ResultLine(what="job", done=True, result=job.id)]

    return PreparedChange(
        action="rebuild store",
        target=name,
        sentence=f"rebuild the {what} of {path} from the log; the old files are kept for `orbitlog doctor undo`",
        lines=[PlanLine(what=what, before=f"{len(found)} findings", after="rebuilt from the log")],
        apply=apply,
        confirm=name,
        warnings=list(_WARNINGS),
        starts_job=True,
    )


async def _run(job: Job, *words: str) -> None:
    job.columns = ["field", "value"]
    result = await doctor_result(*words, seconds=_APPLY_SECONDS)
    for name, value in result.items():
        for item in value if isinstance(value, list) else (value,):
            job.add_row([name, item if isinstance(item, int | float | str) or item is None else str(item)])
    job.note = "sound" if result.get("sound", True) else "something is left to repair"
