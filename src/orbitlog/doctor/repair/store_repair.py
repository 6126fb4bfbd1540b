"""Mends a store: plans from what an examination found, and carries the plan out with a journal that can be undone.

Each round is planned from a new look at the store, for what one round mends decides what the next can read: places and
sizes of segments, then the log, then queues, index, checkpoint and config. A dry run tells the plan from the findings
alone and writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orbitlog.doctor.examination import Examination, examine
from orbitlog.doctor.finding_kinds import parts_of
from orbitlog.doctor.repair.config_repair import plan_config
from orbitlog.doctor.repair.derived_swap import CHECKPOINT, INDEX, QUEUES, make_derived, plan_swap
from orbitlog.doctor.repair.displaced_records import plan_displaced
from orbitlog.doctor.repair.header_repair import plan_headers
from orbitlog.doctor.repair.log_repair import plan_log, plan_places
from orbitlog.doctor.repair.order_repair import QueueOrder
from orbitlog.doctor.repair.repair_journal import RepairJournal, finish_interrupted
from orbitlog.doctor.repair.repair_obstacles import free_journal_place, free_lock, set_journals_aside
from orbitlog.doctor.surveys.offset_survey import plan_offsets
from orbitlog.doctor.surveys.progress_survey import plan_progress
from orbitlog.doctor.surveys.timer_survey import plan_timers
from orbitlog.errors import StoreLayoutError
from orbitlog.jobs.local_runner import PhaseProgress, run_here
from orbitlog.jobs.missing_log import ACCEPT_OPTION
from orbitlog.jobs.store_use import taken
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.inferred_geometry import told_geometry
from orbitlog.storefiles.inferred_rules import told_compat, told_rules
from orbitlog.storefiles.store_contents import REPAIRABLE, refuse_writing
from orbitlog.storefiles.store_files import find_store_files

_ROUNDS_MAX = 10


@dataclass(slots=True)
class Repair:
    """What was done, or would be, and what is left."""

    actions: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    examination: Examination | None = None
    is_applied: bool = False

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
    """Describe what a repair would do, or why it would refuse; writes nothing."""
    settings = settings or StoreSettings()
    found = examine(root, settings=settings, progress=progress)
    plan = _Plan(root, settings, found, accept_lost_segments=accept_lost_segments)
    problems = plan.refusal()
    return Repair([] if problems else plan.described(), problems, examination=found)


def apply_repair(
    root: Path,
    *,
    settings: StoreSettings | None = None,
    accept_lost_segments: bool = False,
    progress: PhaseProgress | None = None,
) -> Repair:
    """Repair a store; every change can be taken back by `undo_last`.

    With `accept_lost_segments`, segments of which no file exists are given up: placeholders take the place of their
    messages. Without it nothing is repaired while a part of the log is missing.
    """
    settings = settings or StoreSettings()
    refuse_writing(root, except_for=REPAIRABLE)
    find_store_files(root, settings)
    result = Repair(is_applied=True)
    lock_journal = free_lock(root)
    with taken(root):
        result.actions += free_journal_place(root)
        run = lock_journal.run if lock_journal is not None else None
        broken = set_journals_aside(root, run)
        run = broken.run if broken is not None else run
        for obstacle in (lock_journal, broken):
            result.actions += [f"{root / step.path}: {step.why}" for step in obstacle.steps] if obstacle else []
        result.resumed = finish_interrupted(root)
        for _ in range(_ROUNDS_MAX):
            result.examination = examine(root, settings=settings, progress=progress)
            plan = _Plan(root, settings, result.examination, accept_lost_segments=accept_lost_segments)
            journal = RepairJournal.begin(root, f"repair of {root.name}", run=run)
            problems = plan.fill_in(journal, progress)
            result.problems += [problem for problem in problems if problem not in result.problems]
            if not journal.steps:
                journal.forget()
                break
            run = journal.run
            journal.carry_out()
            result.actions += [f"{root / step.path}: {step.why}" for step in journal.steps]
    return result


class _Plan:
    """What one round does: the first of three stages that has anything to do."""

    def __init__(self, root: Path, settings: StoreSettings, found: Examination, *, accept_lost_segments: bool) -> None:
        self._settings = settings
        self._accepts_loss = accept_lost_segments
        self._found = found
        self._store = find_store_files(root, settings)
        self._geometry = told_geometry(self._store, settings)
        self._of_kind = {kind: [one for one in found.findings if one.kind == kind] for kind in _kinds(found)}

    def fill_in(self, journal: RepairJournal, progress: PhaseProgress | None) -> list[str]:
        if problems := self.refusal():
            return problems
        segment_bytes = self._geometry.segment_bytes
        plan_places(
            journal,
            self._store,
            segment_bytes,
            [*self._of_kind.get(FindingKind.FOREIGN_SEGMENT, []), *self._dangling()],
        )
        if journal.steps:
            return []
        plan_displaced(journal, self._store, self._found.ranges)
        if journal.steps:
            return []
        plan_headers(journal, self._store, self._found.check)
        if journal.steps:
            return []
        order = QueueOrder(self._store, self._found, self._geometry, told_rules(self._store, self._settings))
        order.plan(journal)
        if journal.steps:
            return []
        problems = plan_log(journal, self._store, segment_bytes, self._found, order.lines)
        if journal.steps:
            return problems
        compat = told_compat(self._store, self._settings)
        if timer_findings := self._of_kind.get(FindingKind.TIMER):
            plan_timers(journal, self._store, timer_findings)
            if journal.steps:
                return problems  # other findings may name the same files
        plan_config(journal, self._store, compat, self._found.findings, self._found.check.ends)
        problems = problems + self._plan_derived(journal, progress)
        if not (journal.steps and {FindingKind.QUEUE_UNIT, FindingKind.QUEUE_FILE} & self._of_kind.keys()):
            # From sound queues: they tell when delayed messages are due.
            plan_offsets(journal, self._store, compat, self._found)
            plan_progress(journal, self._store, compat, self._found.check.ends, self._found.check.last_stored_ms)
        return problems

    def refusal(self) -> list[str]:
        """Return why nothing may be changed: a part of the store is elsewhere, unreadable or missing."""
        accepted = {part.finding.path for part in self._found.missing if part.may_be_lost and self._accepts_loss}
        missing = {part.finding.path: part for part in self._found.missing}
        elsewhere = [*self._of_kind.get(FindingKind.LINK, []), *(part.finding for part in missing.values())]
        reasons = []
        for finding in {one.path: one for one in elsewhere if one.path not in accepted}.values():
            part = missing.get(finding.path)
            way_out = f"; if no copy of it exists, {ACCEPT_OPTION} gives its messages up"
            reasons.append(
                f"nothing is repaired before this is resolved: {finding}"
                + (way_out if part is not None and part.may_be_lost else "")
            )
        return reasons

    def _dangling(self) -> list[Finding]:
        """Return links to nowhere in the place of segments that are given up."""
        parts = self._found.missing if self._accepts_loss else ()
        return [part.finding for part in parts if part.may_be_lost and part.finding.kind == FindingKind.LINK]

    def _plan_derived(self, journal: RepairJournal, progress: PhaseProgress | None) -> list[str]:
        parts = parts_of(self._found.findings)
        if not parts:
            return []
        # The new checkpoint speaks for everything: what a killed broker had not derived yet would never be.
        behind = self._found.check.units_behind, self._found.check.keys_behind
        parts |= {part for part, count in zip((QUEUES, INDEX), behind, strict=True) if count}
        made = journal.new / "derived"
        try:
            result = make_derived(
                run_here,
                self._store.root,
                made,
                self._settings,
                accept_lost_segments=self._accepts_loss,
                progress=progress,
            )
        except StoreLayoutError as error:
            return [str(error)]
        if not result.is_published:
            return [f"nothing was derived: {finding}" for finding in result.findings]
        plan_swap(
            journal,
            self._store,
            made,
            parts=parts | {CHECKPOINT},
            queues=self._wrong_queues(),
            vouches_for_index=True,
        )
        return []

    def _wrong_queues(self) -> set[tuple[str, int]] | None:
        """Return the queues that findings name; None for all where not every finding is listed."""
        check = self._found.check
        if check.finding_count > len(check.findings):
            return None
        named = [
            one for kind in (FindingKind.QUEUE_UNIT, FindingKind.QUEUE_FILE) for one in self._of_kind.get(kind, [])
        ]
        wrong = {(one.topic, one.queue_id) for one in named if one.topic is not None and one.queue_id is not None}
        return wrong | check.ends.keys() if check.units_behind else wrong

    def described(self) -> list[str]:
        """Say in sentences what the rounds would do, from the findings alone."""
        told = []
        for diagnosis in self._found.diagnoses:
            deed = _DEEDS.get(diagnosis.finding.kind)
            if deed is not None:
                told.append(f"{deed}: {diagnosis.finding}")
        return told


_DEEDS = {
    "foreign segment": "set aside",
    "segment": "bring to its place and size, or fill with placeholders and a segment end",
    "record": "cut, if nothing follows; else fill with placeholders for the messages that are lost, and with filler",
    "queue order": "put wrong fields right, or fill the gap with placeholders where the log is damaged",
    "queue unit": "make the queue again from the log",
    "queue file": "make the queue again from the log",
    "index": "make the index again from the log",
    "checkpoint": "make the checkpoint again from the log",
    "config": "write what can be saved, and what the queues tell",
    "config backup in use": "take the backup",
    "topic": "add the topic to topics.json",
    "queue count": "raise the topic's number of queues to read in topics.json",
    "lock": "set aside",
    "journal": "set aside",
    "timer": "set the wheel aside, which brokers make again from the timer log; or all timer files, which they make"
    " again from the log: then what was delivered comes again",
    "offset": "bring the offset back between the queue's bounds",
}


def _kinds(found: Examination) -> set[FindingKind]:
    return {finding.kind for finding in found.findings}
