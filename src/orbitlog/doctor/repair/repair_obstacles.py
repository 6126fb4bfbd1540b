"""What keeps a repair from beginning: a lock that cannot be taken, journals that say nothing. Set aside before all.

The lock must be free before it can be taken, so of two repairs at once the one that makes the journal's directory first
goes on. What stands in the place of the doctor's own directory is given another name, and its own again by undoing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orbitlog.doctor.repair.repair_journal import (
    DOCTOR_ASIDE,
    RepairJournal,
    finish_interrupted,
    is_applied,
    unreadable_journals,
)
from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.storefiles.disk import RealDisk, disk_errors

_LOCK_TITLE = "a lock that cannot be taken"
_MOVED_FILE = re.compile(r"\d+-.")


def free_lock(root: Path) -> RepairJournal | None:
    """Set aside what stands in the place of the lock, and can be none; returns the journal that takes it back."""
    finish_interrupted(root, only=_LOCK_TITLE)
    lock = root / tree.LOCK
    if not os.path.lexists(lock) or (lock.is_file() and not lock.is_symlink()):
        return None
    if lock.is_file() and RealDisk().lock_holder(lock) is not None:
        return None  # a link to a file that somebody has locked
    free_journal_place(root)
    journal = RepairJournal.begin(root, _LOCK_TITLE)
    journal.set_aside(lock, "is no file that could be locked, and keeps brokers from starting")
    journal.carry_out()
    return journal


def free_journal_place(root: Path) -> list[str]:
    """Give what stands in the place of the doctor's directory another name."""
    place, aside = root / tree.DOCTOR, root / DOCTOR_ASIDE
    if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink()):
        return []
    if os.path.lexists(aside):
        raise StoreLayoutError(f"{place} is in the place of the doctor's directory, and {aside} is there already")
    with disk_errors(f"renaming {place}"):
        place.rename(aside)
    return [f"{place}: is in the place of the doctor's directory; it is {aside.name} now"]


def set_journals_aside(root: Path, run: str | None) -> RepairJournal | None:
    """Set aside the journals that cannot be read; one that may hold files of the store stays, and stops the repair."""
    places = list(unreadable_journals(root))
    for place in places:
        if not is_applied(place) and any(_moved_files(place)):
            raise StoreLayoutError(
                f"{place} is no journal of a repair any more, and may keep files of the store;"
                f" look at {place / 'kept'}, and move it away"
            )
    if not places:
        return None
    journal = RepairJournal.begin(root, "journals that cannot be read", run=run)
    for place in places:
        journal.set_aside(place, "is no journal of a repair, and nothing could be taken back by it")
    journal.carry_out()
    return journal


def _moved_files(place: Path) -> Iterator[Path]:
    kept = place / "kept"
    return (path for path in kept.iterdir() if _MOVED_FILE.match(path.name)) if kept.is_dir() else iter(())
