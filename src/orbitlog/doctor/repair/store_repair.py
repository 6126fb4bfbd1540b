"""Store repair: plans steps from an examination, and carries them out with a journal that can be undone.

Each round is planned from a new examination, because a round decides what the next one can read: places and sizes of
segments, then the log, then queues, index, checkpoint and config. A dry run plans the first round with the same
planners, against a journal that only records the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from orbitlog.doctor.examination import Examination, examine
from orbitlog.doctor.repair.derived_swap import DerivedSet, make_derived, predict_derived, vouch_for_index
from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.repair.planners import Round
from orbitlog.doctor.repair.repair_journal import RepairJournal, finish_interrupted, pending_steps
from orbitlog.doctor.repair.repair_obstacles import (
    JOURNALS_TITLE,
    LOCK_TITLE,
    free_journal_place,
    free_lock,
    plan_journal_place,
    plan_journals,
    plan_lock,
    quarantine_journals,
)
from orbitlog.errors import StoreLayoutError
from orbitlog.jobs.local_runner import PhaseProgress, run_here
from orbitlog.jobs.store_use import StoreUse, taken
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.confined.confined_disk import ConfinedDisk
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.store_contents import (
    CHECKABLE,
    READABLE,
    REPAIRABLE,
    refuse_reading,
    refuse_unwritable,
    refuse_writing,
)
from orbitlog.storefiles.store_files import find_store_files
from orbitlog.storefiles.store_paths import StorePaths

_ROUNDS_MAX = 10


@dataclass(slots=True)
class Repair:
    """What a repair did or would do, and what is left; `journals` has one for each obstacle and each round."""

    notes: list[str] = field(default_factory=list)
    journals: list[PlanJournal] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    examination: Examination | None = None
    is_applied: bool = False

    @property
    def actions(self) -> list[str]:
        """The steps as sentences; of a dry run those of the first round."""
        return [*self.notes, *(action for journal in self.journals for action in journal.actions)]

    @property
    def is_sound(self) -> bool:
        return self.examination is not None and self.examination.is_sound

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        left = self.examination.diagnoses if self.examination else ()
        return {
            "applied": self.is_applied,
            "sound": self.is_sound,
            "resumed": self.resumed,
            "actions": self.actions,
            "problems": self.problems,
            "findings": [diagnosis.as_object() for diagnosis in left],
        }


def plan_repair(
    root: Path,
    *,
    settings: StoreSettings | None = None,
    accept_lost_segments: bool = False,
    progress: PhaseProgress | None = None,
) -> Repair:
    """Plan the steps up to the end of the first round, or return why a repair would refuse; writes nothing."""
    settings = settings or StoreSettings()
    # A check reads the log of DLedger, but a repair would be refused: it is not planned either.
    refuse_reading(root, except_for=CHECKABLE - READABLE)
    found = examine(root, settings=settings, progress=progress)
    result = Repair(examination=found)
    store = find_store_files(root, settings)
    dry = PlanJournal.dry(root, f"repair of {root.name}")
    derive = partial(predict_derived, store, found)
    first = Round(store, settings, found, dry, derive, accepts_loss=accept_lost_segments)
    result.problems = first.refusals()
    if result.problems:
        return result
    try:
        result.notes = plan_journal_place(root)
        result.journals = list(_planned_obstacles(root))
        pending = pending_steps(root)
    except StoreLayoutError as error:
        result.problems = [str(error)]
        return result
    if pending:
        # The rounds that follow are planned from the store that this leaves.
        result.notes += pending
        return result
    run = result.journals[0].run if result.journals else None
    first.journal = PlanJournal.dry(root, dry.title, earlier=len(result.journals), run=run)
    result.problems = first.fill_in()
    if first.journal.steps:
        result.journals.append(first.journal)
    return result


def _planned_obstacles(root: Path) -> Sequence[PlanJournal]:
    journals: list[PlanJournal] = []
    for title, plan in ((LOCK_TITLE, plan_lock), (JOURNALS_TITLE, plan_journals)):
        run = journals[0].run if journals else None
        journal = PlanJournal.dry(root, title, earlier=len(journals), run=run)
        plan(journal)
        if journal.steps:
            journals.append(journal)
    return journals


def apply_repair(
    root: Path,
    *,
    settings: StoreSettings | None = None,
    accept_lost_segments: bool = False,
    resume: bool = False,
    progress: PhaseProgress | None = None,
    disk: Disk | None = None,
) -> Repair:
    """Repair a store; `undo_last` undoes every change.

    A repair that was interrupted is finished first: one of another user or machine only with `resume`.

    With `accept_lost_segments`, segments of which no file exists are given up: placeholders replace their messages.
    Without it nothing is repaired while a part of the log is missing.
    """
    settings, disk = settings or StoreSettings(), disk or ConfinedDisk(root)
    refuse_unwritable(StorePaths.below(root))
    refuse_writing(root, except_for=REPAIRABLE)
    find_store_files(root, settings)
    result = Repair(is_applied=True)
    result.notes, freed = free_lock(disk, root, resume=resume)
    with taken(root) as use:
        result.notes += free_journal_place(disk, root)
        result.journals = [] if freed is None else [freed]
        run = None if freed is None else freed.run
        if (broken := quarantine_journals(disk, root, run)) is not None:
            result.journals.append(broken)
            run = broken.run
        result.resumed = finish_interrupted(root, resume=resume, disk=disk)
        for _ in range(_ROUNDS_MAX):
            result.examination = examine(root, settings=settings, progress=progress, use=use)
            journal = RepairJournal.begin(root, f"repair of {root.name}", run=run, disk=disk)
            store = find_store_files(root, settings)
            derive = partial(
                _build_derived, root, journal, settings, use, accepts_loss=accept_lost_segments, progress=progress
            )
            planned = Round(store, settings, result.examination, journal, derive, accepts_loss=accept_lost_segments)
            problems = planned.fill_in()
            result.problems += [problem for problem in problems if problem not in result.problems]
            if not journal.steps:
                journal.forget()
                break
            run = journal.run
            journal.carry_out()
            result.journals.append(journal)
    return result


def _build_derived(
    root: Path,
    journal: RepairJournal,
    settings: StoreSettings,
    use: StoreUse,
    out: Path,
    *,
    accepts_loss: bool,
    progress: PhaseProgress | None,
) -> tuple[DerivedSet | None, list[str]]:
    """Rebuild the derived files into `out`; returns the problems if that fails."""
    try:
        result = make_derived(
            run_here,
            root,
            out,
            settings,
            accept_lost_segments=accepts_loss,
            progress=progress,
            disk=journal.disk,
            use=use,
        )
    except StoreLayoutError as error:
        return None, [str(error)]
    if not result.is_published:
        return None, [f"nothing was derived: {finding}" for finding in result.findings]
    vouch_for_index(journal.disk, out, journal.place)
    return DerivedSet.found_in(out), []
