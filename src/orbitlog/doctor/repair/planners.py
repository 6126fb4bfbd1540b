"""Planners of a repair, in the order in which they are asked: the plan that is shown is the plan that is applied.

A round is planned from one examination. Sizes and places of segments decide what can be read at all, so a planner of
the log ends the round if it has planned a step, and the next round starts with a new examination. Planners fill in a
`PlanJournal`; only `RepairJournal` keeps bytes and changes the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from orbitlog.doctor.examination import Examination
from orbitlog.doctor.finding_kinds import DerivedPart, Planner, parts_of
from orbitlog.doctor.repair.config_repair import plan_config
from orbitlog.doctor.repair.derived_swap import Deriver, plan_swap
from orbitlog.doctor.repair.displaced_records import plan_displaced
from orbitlog.doctor.repair.header_repair import plan_headers
from orbitlog.doctor.repair.log_repair import plan_log, plan_places
from orbitlog.doctor.repair.offset_repair import plan_offsets
from orbitlog.doctor.repair.order_repair import QueueOrder
from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.repair.progress_repair import plan_progress
from orbitlog.doctor.repair.timer_repair import plan_timers
from orbitlog.formats.compat import Compat
from orbitlog.jobs.missing_log import ACCEPT_OPTION
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.findings import Finding, FindingKind
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.inferred_rules import sampled_compat, sampled_rules
from orbitlog.storefiles.store_files import StoreFiles

_QUEUE_KINDS = (FindingKind.QUEUE_UNIT, FindingKind.QUEUE_FILE)


@dataclass
class Round:
    """One round of a repair: a store as an examination found it, and the journal for the steps.

    `derive` rebuilds derived files into a directory, or predicts which ones a rebuild would make.
    """

    store: StoreFiles
    settings: StoreSettings
    found: Examination
    journal: PlanJournal
    derive: Deriver
    accepts_loss: bool = False

    def of(self, *kinds: FindingKind) -> list[Finding]:
        """Return the findings of some kinds."""
        return [finding for finding in self.found.findings if finding.kind in kinds]

    @cached_property
    def geometry(self) -> StoreGeometry:
        return robust_geometry(self.store, self.settings)

    @cached_property
    def compat(self) -> Compat:
        return sampled_compat(self.store, self.settings)

    @cached_property
    def order(self) -> QueueOrder:
        return QueueOrder(self.store, self.found, self.geometry, sampled_rules(self.store, self.settings))

    def refusals(self) -> list[str]:
        """Return why nothing may be changed: a part of the store is a link, unreadable or missing."""
        accepted = {part.finding.path for part in self.found.missing if part.may_be_lost and self.accepts_loss}
        missing = {part.finding.path: part for part in self.found.missing}
        elsewhere = [*self.of(FindingKind.LINK), *(part.finding for part in missing.values())]
        reasons = []
        for finding in {one.path: one for one in elsewhere if one.path not in accepted}.values():
            part = missing.get(finding.path)
            way_out = f"; if no copy of it exists, {ACCEPT_OPTION} gives its messages up"
            reasons.append(
                f"nothing is repaired before this is resolved: {finding}"
                + (way_out if part is not None and part.may_be_lost else "")
            )
        return reasons

    def fill_in(self) -> list[str]:
        """Plan the steps of this round; returns the problems that no planner could solve."""
        problems = self.refusals()
        if problems:
            return problems
        for stage in STAGES:
            planned = len(self.journal.steps)
            problems += stage.plan(self)
            if len(self.journal.steps) > planned:
                self.journal.planners.append(stage.planner)
                if stage.ends_round:
                    break
        return problems


def _plan_places(repair: Round) -> list[str]:
    parts = repair.found.missing if repair.accepts_loss else ()
    # Dangling links have the names of segments that are given up.
    dangling = [part.finding for part in parts if part.may_be_lost and part.finding.kind is FindingKind.LINK]
    foreign = [*repair.of(FindingKind.FOREIGN_SEGMENT), *dangling]
    plan_places(repair.journal, repair.store, repair.geometry.segment_bytes, foreign)
    return []


def _plan_displaced(repair: Round) -> list[str]:
    plan_displaced(repair.journal, repair.store, repair.found.ranges)
    return []


def _plan_headers(repair: Round) -> list[str]:
    plan_headers(repair.journal, repair.store, repair.found.check)
    return []


def _plan_order(repair: Round) -> list[str]:
    repair.order.plan(repair.journal)
    return []


def _plan_log(repair: Round) -> list[str]:
    return plan_log(repair.journal, repair.store, repair.geometry.segment_bytes, repair.found, repair.order.lines)


def _plan_timers(repair: Round) -> list[str]:
    if findings := repair.of(FindingKind.TIMER):
        plan_timers(repair.journal, repair.store, findings)
    return []


def _plan_config(repair: Round) -> list[str]:
    plan_config(repair.journal, repair.store, repair.compat, repair.found.findings, repair.found.check.ends)
    return []


def _plan_derived(repair: Round) -> list[str]:
    parts = parts_of(repair.found.findings)
    if not parts:
        return []
    check = repair.found.check
    # The new checkpoint covers everything: messages that a killed broker had not dispatched would never be.
    behind = {DerivedPart.QUEUES: check.units_behind, DerivedPart.INDEX: check.keys_behind}
    parts |= {part for part, count in behind.items() if count}
    made, problems = repair.derive(repair.journal.new / "derived")
    if made is not None:
        parts.add(DerivedPart.CHECKPOINT)
        plan_swap(repair.journal, repair.store, made, parts=parts, queues=_wrong_queues(repair))
    return problems


def _wrong_queues(repair: Round) -> set[tuple[str, int]] | None:
    """Return the queues that findings name; None for all if there are more findings than were listed."""
    check = repair.found.check
    if check.finding_count > len(check.findings):
        return None
    named = repair.of(*_QUEUE_KINDS)
    wrong = {(one.topic, one.queue_id) for one in named if one.topic is not None and one.queue_id is not None}
    return wrong | check.ends.keys() if check.units_behind else wrong


def _has_new_queues(repair: Round) -> bool:
    """Return whether this round replaces queues: offsets are repaired from sound ones, which have the due times."""
    return bool(repair.journal.steps) and bool(repair.of(*_QUEUE_KINDS))


def _plan_offsets(repair: Round) -> list[str]:
    if not _has_new_queues(repair):
        plan_offsets(repair.journal, repair.store, repair.compat, repair.found)
    return []


def _plan_progress(repair: Round) -> list[str]:
    if not _has_new_queues(repair):
        check = repair.found.check
        plan_progress(repair.journal, repair.store, repair.compat, check.ends, check.last_stored_ms)
    return []


class Stage(NamedTuple):
    """A planner and whether its steps end the round."""

    planner: Planner
    plan: Callable[[Round], list[str]]
    ends_round: bool


# The lock and unreadable journals come before any round: see `repair_obstacles`.
STAGES: tuple[Stage, ...] = (
    Stage(Planner.PLACES, _plan_places, True),
    Stage(Planner.DISPLACED, _plan_displaced, True),
    Stage(Planner.HEADERS, _plan_headers, True),
    Stage(Planner.ORDER, _plan_order, True),
    Stage(Planner.LOG, _plan_log, True),
    Stage(Planner.TIMERS, _plan_timers, True),  # other findings may be about the same files
    Stage(Planner.CONFIG, _plan_config, False),
    Stage(Planner.DERIVED, _plan_derived, False),
    Stage(Planner.OFFSETS, _plan_offsets, False),
    Stage(Planner.PROGRESS, _plan_progress, False),
)
