"""Obstacles to a repair: a lock that cannot be taken, unreadable journals. They are quarantined before any round.

The lock must be freed before it can be taken, so of two repairs at the same time the one that creates the directory of
the journal first continues. An entry that has the name of the doctor's directory is renamed; an undo restores it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orbitlog.doctor.repair.plan_journal import PlanJournal
from orbitlog.doctor.repair.repair_journal import (
    DOCTOR_ASIDE,
    RepairJournal,
    finish_interrupted,
    is_applied,
    unreadable_journals,
)
from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.storefiles.disk import Disk, RealDisk

LOCK_TITLE = "a lock that cannot be taken"
JOURNALS_TITLE = "journals that cannot be read"
_MOVED_FILE = re.compile(r"\d+-.")


def plan_lock(journal: PlanJournal) -> None:
    """Quarantine an entry that has the name of the lock and is not a file that could be locked."""
    lock = journal.root / tree.LOCK
    if not os.path.lexists(lock) or (lock.is_file() and not lock.is_symlink()):
        return
    if lock.is_file() and RealDisk().lock_holder(lock) is not None:
        return  # a link to a file that another process has locked
    journal.quarantine(lock, "is not a file that can be locked, and keeps brokers from starting")


def free_lock(disk: Disk, root: Path, *, resume: bool = False) -> tuple[list[str], RepairJournal | None]:
    """Quarantine an invalid lock; returns notes about other changes, and the journal that undoes it."""
    finish_interrupted(root, only=LOCK_TITLE, resume=resume, disk=disk)
    planned = PlanJournal.dry(root, LOCK_TITLE)
    plan_lock(planned)
    if not planned.steps:
        return [], None
    notes = free_journal_place(disk, root)
    journal = RepairJournal.begin(root, LOCK_TITLE, disk=disk)
    plan_lock(journal)
    journal.carry_out()
    return notes, journal


def plan_journal_place(root: Path) -> list[str]:
    """Return the sentence for an entry that has the name of the doctor's directory, if there is one."""
    place, aside = root / tree.DOCTOR, root / DOCTOR_ASIDE
    if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink()):
        return []
    if os.path.lexists(aside):
        raise StoreLayoutError(f"{place} has the name of the doctor's directory, and {aside} exists already")
    return [f"{place}: has the name of the doctor's directory; it is renamed to {aside.name}"]


def free_journal_place(disk: Disk, root: Path) -> list[str]:
    """Rename an entry that has the name of the doctor's directory."""
    planned = plan_journal_place(root)
    if planned:
        disk.move(root / tree.DOCTOR, root / DOCTOR_ASIDE)
        disk.sync_directory(root)
    return planned


def plan_journals(journal: PlanJournal) -> None:
    """Quarantine unreadable journals; raise `StoreLayoutError` if one of them may keep files of the store."""
    places = list(unreadable_journals(journal.root))
    for place in places:
        if not is_applied(place) and any(_moved_files(place)):
            raise StoreLayoutError(
                f"{place} is not a valid repair journal any more, and may keep files of the store;"
                f" look at {place / 'kept'}, and move it away"
            )
    for place in places:
        journal.quarantine(place, "is not a valid repair journal, and nothing could be undone with it")


def quarantine_journals(disk: Disk, root: Path, run: str | None) -> RepairJournal | None:
    """Quarantine unreadable journals; returns the journal that undoes it."""
    planned = PlanJournal.dry(root, JOURNALS_TITLE)
    plan_journals(planned)
    if not planned.steps:
        return None
    journal = RepairJournal.begin(root, JOURNALS_TITLE, run=run, disk=disk)
    plan_journals(journal)
    journal.carry_out()
    return journal


def _moved_files(place: Path) -> Iterator[Path]:
    kept = place / "kept"
    return (path for path in kept.iterdir() if _MOVED_FILE.match(path.name)) if kept.is_dir() else iter(())
