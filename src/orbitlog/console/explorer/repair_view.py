"""Repair and rebuild of a store: plans by `orbitlog doctor` in a child process; nothing is changed by a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orbitlog.console.explorer.store_reading import store_path
from orbitlog.console.views.answers import Answer, ConsoleError
from orbitlog.console.work.child_process import ChildFailed, json_lines

PLAN_SECONDS = 300.0
_FOUND_SOMETHING = (0, 1)


class RepairPlanAnswer(Answer, kw_only=True):
    """The steps that repair a store, up to the end of the first round; none if it is sound."""

    store: str
    is_sound: bool
    steps: list[str]
    problems: list[str]
    command: str


async def plan_store_repair(stores: dict[str, Path], name: str) -> RepairPlanAnswer:
    """Return the plan of a repair; raise `ConsoleError` if the store cannot be examined."""
    path = store_path(stores, name)
    result = await doctor_result("repair", str(path), seconds=PLAN_SECONDS)
    return RepairPlanAnswer(
        store=name,
        is_sound=bool(result.get("sound")),
        steps=[str(action) for action in result.get("actions", ())],
        problems=[str(problem) for problem in result.get("problems", ())],
        command=f"orbitlog doctor repair {path} --apply",
    )


async def doctor_result(*words: str, seconds: float) -> dict[str, Any]:
    """Run a doctor's command; return the last object that it prints."""
    last: dict[str, Any] = {}
    try:
        async for value, _ in json_lines("doctor", *words, "--json", seconds=seconds, accepted=_FOUND_SOMETHING):
            last = value
    except ChildFailed as error:
        raise ConsoleError(422, str(error)) from None
    if not last:
        raise ConsoleError(422, f"orbitlog doctor {words[0]} printed nothing")
    return last
