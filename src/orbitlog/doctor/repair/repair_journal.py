"""Repair journal: the steps of a repair, written down before the first, so that it can be finished or undone.

    .orbitlog-doctor/000001/journal.json   the steps; once it exists the repair is carried out, now or by the next run
    .orbitlog-doctor/000001/kept/…         bytes and files that were replaced
    .orbitlog-doctor/000001/new/…          bytes and files that replace them
    .orbitlog-doctor/000001/applied        every step was carried out; size and time of the changed files after it
    .orbitlog-doctor/000001/undoing        the repair is being undone
    .orbitlog-doctor/000001/progress       the number of steps that are done

Progress is noted after each write, and after up to 64 renames, so after a kill it is unknown whether the next steps
were done. They may be repeated with the same effect: a rename whose target exists was done. Of renames that are noted
together those into the journal come first, and are durable before any of the others begins.

A store may come from a stranger, and its journal with it. So each journal has a mark that only this user's key gives,
and one without it is carried out only if the operator asks for that. Steps are done on a `ConfinedDisk`: whatever a
journal names, no file outside the store is reached.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from orbitlog.doctor.repair.plan_journal import JOURNAL, KEPT, NEW, PlanJournal, Step, journal_places
from orbitlog.errors import StoreLayoutError
from orbitlog.formats.java import LONG_MAX
from orbitlog.formats.store_tree import DOCTOR, LOCK
from orbitlog.jobs.run_marks import is_own, mark_of
from orbitlog.jobs.staging import TEMPORARY, put_bytes, sync_tree, whole_file
from orbitlog.storefiles.confined.confined_disk import ConfinedDisk, refuse_shared
from orbitlog.storefiles.confined.regular_files import open_below, read_below
from orbitlog.storefiles.disk import Disk, RealDisk, disk_errors
from orbitlog.storefiles.mapped_view import written_until
from orbitlog.storefiles.store_contents import REPAIRABLE, refuse_writing

DOCTOR_ASIDE = f"{DOCTOR}.aside"  # an entry that had the name of the doctor's directory
_APPLIED, _UNDOING, _PROGRESS = "applied", "undoing", "progress"
_COPY_BYTES = 1 << 20
_MOVES_TOGETHER_MAX = 64
_JOURNAL_BYTES_MAX = 256 * 1024 * 1024
_PROGRESS_BYTES_MAX = 16
_RESUME = "--resume"


def _plain(step: Step) -> dict[str, Any]:
    return {name: getattr(step, name) for name in Step.__slots__}


@dataclass(slots=True)
class RepairJournal(PlanJournal):
    """The steps of one repair, gathered with the bytes that they need, and then carried out."""

    disk: Disk = field(default_factory=RealDisk)
    """A `ConfinedDisk`, unless a test gives another."""

    @classmethod
    def begin(cls, root: Path, title: str, *, run: str | None = None, disk: Disk | None = None) -> RepairJournal:
        """Create the directory of a new journal; removes those of runs that never wrote their steps down."""
        disk = disk or ConfinedDisk(root)
        for place in journal_places(root):
            if not (place / JOURNAL).exists():
                disk.remove_tree(place)
        plan = PlanJournal.dry(root, title, run=run)
        for directory in (NEW, KEPT):
            disk.make_directory(plan.place / directory, durable=False)
        return cls(root, plan.place, plan.run, title, disk=disk)

    def carry_out(self) -> None:
        """Write the steps down, and then do them."""
        for directory in (self.place / KEPT, self.new):
            sync_tree(self.disk, directory)
        journal: dict[str, Any] = {
            "run": self.run,
            "title": self.title,
            "steps": [_plain(step) for step in self.steps],
            "made": _missing_directories(self.root, self.steps),
        }
        journal["mark"] = mark_of(journal)
        # File names need not be text: json escapes those that are not, orjson does not.
        put_bytes(self.disk, self.place / JOURNAL, json.dumps(journal).encode("ascii"), self.place / TEMPORARY)
        self.disk.remove_tree(self.place / TEMPORARY)
        # All three before the first step: a store that was changed must have the journal that undoes it.
        for directory in (self.place, self.place.parent, self.root):
            self.disk.sync_directory(directory)
        _apply(self.disk, self.root, self.place, self.steps)

    def forget(self) -> None:
        """Remove a journal that was never carried out."""
        self.disk.remove_tree(self.place)
        if not any(journal_places(self.root)) and (self.root / DOCTOR).is_dir():
            self.disk.remove_directory(self.root / DOCTOR)

    def _keep(self, name: str, data: bytes, *, size_bytes: int | None = None) -> None:
        with whole_file(self.disk, self.place / name, self.place / TEMPORARY) as file:
            file.write(0, data)
            if size_bytes is not None:
                file.resize(size_bytes)

    def _keep_range(self, name: str, path: Path, position: int, count: int) -> None:
        with path.open("rb") as file:
            old = os.pread(file.fileno(), count, position)
        assert len(old) == count, "a write stays inside its file"
        self._keep(name, old)

    def _keep_end(self, name: str, path: Path, start: int) -> None:
        """Keep the end of a file, without the hole at its very end: the size alone restores that."""
        with path.open("rb") as file, whole_file(self.disk, self.place / name, self.place / TEMPORARY) as kept:
            position, end = start, written_until(path)
            while chunk := os.pread(file.fileno(), max(min(_COPY_BYTES, end - position), 0), position):
                kept.write(position - start, chunk)
                position += len(chunk)


def finish_interrupted(
    root: Path, *, only: str | None = None, resume: bool = False, disk: Disk | None = None
) -> list[str]:
    """Finish the repairs and undos of runs that were killed; returns their titles.

    With `only`, those of one title, without a look at the others. Raise `StoreLayoutError` for a journal of another
    user or machine, unless `resume` is set.
    """
    disk = disk or ConfinedDisk(root)
    finished = []
    broken = set(unreadable_journals(root)) if only is not None else set()
    for place in journal_places(root):
        journal = _read(place) if place not in broken else None
        if journal is None or only not in (None, journal["title"]) or is_applied(place):
            continue
        if not resume:
            _refuse_foreign(place, journal, "finished")
        if (place / _UNDOING).exists():
            _take_back(disk, root, place, journal)
            finished.append(f"undo of {journal['title']}")
        else:
            _apply(disk, root, place, [Step(**step) for step in journal["steps"]])
            finished.append(journal["title"])
    return finished


def interrupted(root: Path) -> list[Path]:
    """Return the journals of repairs and undos that were killed."""
    return [
        place
        for place in journal_places(root)
        if _read(place) is not None and ((place / _UNDOING).exists() or not (place / _APPLIED).exists())
    ]


def pending_steps(root: Path) -> list[str]:
    """Return sentences about repairs and undos that were killed, and their steps; unreadable journals are left out."""
    broken = set(unreadable_journals(root))
    found: list[str] = []
    for place in journal_places(root):
        journal = _read(place) if place not in broken and not is_applied(place) else None
        if journal is None:
            continue
        verb = "undo" if (place / _UNDOING).exists() else "finish"
        origin = "" if _is_own(journal) else f"; another user or machine wrote {place}, so {_RESUME} is needed"
        found.append(f"{root}: {verb} what was interrupted first: {journal['title']}{origin}")
        for step in journal["steps"]:
            target = f" to {step['to']}" if step["to"] else ""
            found.append(f"{root / step['path']}: {step['do']}{target}: {step['why']}")
    return found


def _is_own(journal: dict[str, Any]) -> bool:
    return is_own({name: value for name, value in journal.items() if name != "mark"}, journal.get("mark"))


def _refuse_foreign(place: Path, journal: dict[str, Any], what: str) -> None:
    """Raise `StoreLayoutError` if a journal was not written by this user on this machine."""
    if not _is_own(journal):
        raise StoreLayoutError(
            f"{place} is a repair journal that this user did not write on this machine, so it is not {what}: look at"
            f" its steps with `orbitlog doctor repair`, then give {_RESUME} if you trust them, or move {place} away"
        )


def is_applied(place: Path) -> bool:
    """Return whether all steps of a journal were carried out."""
    return (place / _APPLIED).exists() and not (place / _UNDOING).exists()


def unreadable_journals(root: Path) -> Iterator[Path]:
    """Yield the journals that are invalid, or whose progress is."""
    for place in journal_places(root):
        try:
            if _read(place) is not None and not is_applied(place):
                _progress(place)
        except StoreLayoutError:
            yield place


def undo_last(root: Path, *, force: bool = False, resume: bool = False, disk: Disk | None = None) -> list[str]:
    """Undo the last run, its last journal first; returns the steps that were undone.

    Raise `StoreLayoutError` for a journal of another user or machine, unless `resume` is set.
    """
    disk = disk or ConfinedDisk(root)
    refuse_writing(root, except_for=REPAIRABLE)
    journals = [(place, journal) for place in journal_places(root) if (journal := _read(place)) is not None]
    if not journals:
        if _put_back_aside(disk, root):
            return [f"{DOCTOR}: restored"]
        raise StoreLayoutError(f"{root} has no repair to undo")
    run = journals[-1][1]["run"]
    wanted = [(place, journal) for place, journal in journals if journal["run"] == run]
    for place, journal in () if resume else wanted:
        _refuse_foreign(place, journal, "undone")
    if not force:
        _refuse_if_changed(root, wanted)
    for place, _ in wanted:
        _progress(place)  # raises before anything is undone
    undone: list[str] = []
    for place, journal in reversed(wanted):
        put_bytes(disk, place / _UNDOING, b"", place / TEMPORARY)
        disk.sync_directory(place)
        undone += [f"{step['path']}: {step['why']}" for step in reversed(journal["steps"])]
        _take_back(disk, root, place, journal)
    return undone


def discard_kept(root: Path, *, disk: Disk | None = None) -> int:
    """Remove every journal with the files that it keeps, so that nothing can be undone; returns their number."""
    disk = disk or ConfinedDisk(root)
    places = list(journal_places(root))
    if interrupted(root):
        raise StoreLayoutError(f"a repair of {root} was interrupted; repeat it, or undo it, before discarding")
    for place in places:
        _discard(disk, place)
    disk.remove_tree(root / DOCTOR)
    return len(places)


def _discard(disk: Disk, place: Path) -> None:
    """Remove a journal: its steps first and durably, or a crash in between would leave steps without their bytes."""
    disk.remove_file(place / JOURNAL)
    disk.sync_directory(place)
    disk.remove_tree(place)


def _read(place: Path) -> dict[str, Any] | None:
    path = place / JOURNAL
    if not os.path.lexists(path):
        return None
    try:
        raw = read_below(_root_of(place), path, _JOURNAL_BYTES_MAX)
        journal: dict[str, Any] = json.loads(raw or b"")
        steps = [Step(**step) for step in journal["steps"]]
        journal["steps"] = [_plain(step) for step in steps]
        is_sound = isinstance(journal["title"], str) and isinstance(journal["run"], str)
        is_sound = is_sound and all(map(_is_step, steps))
        is_sound = is_sound and all(_stays_inside(name) for step in steps for name in (step.path, step.to or "."))
        is_sound = is_sound and all(_stays_inside(name or ".") for step in steps for name in (step.old, step.new))
        is_sound = is_sound and all(_stays_inside(name) for name in journal.get("made", ()))
    except (OSError, ValueError, TypeError, KeyError, RecursionError, AttributeError, StoreLayoutError):
        is_sound = False
    if not is_sound:
        raise StoreLayoutError(
            f"{path} is not a valid repair journal, so it is neither finished nor undone; move {place} away"
        )
    return journal


def _is_step(step: Step) -> bool:
    """Return whether the fields of a step have the types of its kind: a journal from elsewhere may contain anything."""
    texts, numbers = (step.path, step.why), (step.position, step.size_bytes, step.old_size_bytes, step.modified_ns)
    is_typed = all(isinstance(text, str) for text in texts) and all(
        type(number) is int and 0 <= number <= LONG_MAX for number in numbers
    )
    needed = {"move": (step.to,), "write": (step.old, step.new), "resize": ()}.get(step.do)
    optional = (step.to, step.old, step.new)
    return (
        is_typed
        and needed is not None
        and all(isinstance(name, str) for name in needed)
        and all(name is None or isinstance(name, str) for name in optional)
    )


def _root_of(place: Path) -> Path:
    """Return the store of a journal, whose directory is `<root>/.orbitlog-doctor/<number>`."""
    return place.parent.parent


def _stays_inside(name: str) -> bool:
    """Return whether a name stays below the store: a journal from elsewhere must not reach other files."""
    return not name.startswith("/") and ".." not in name.split("/")


def _apply(disk: Disk, root: Path, place: Path, steps: list[Step]) -> None:
    with disk_errors(f"repairing {root}"):
        done = _progress(place)
        while done < len(steps):
            together = _moves_from(steps, done) or steps[done : done + 1]
            for group in _quarantines_first(together, place):
                for step in group:
                    _do(disk, root, place, step)
                _sync_names(disk, root, group)
            done += len(together)
            _note_progress(disk, place, done)
        changed = {step.path: _identity(root / step.path) for step in steps if step.do != "move"}
        put_bytes(disk, place / _APPLIED, json.dumps(changed).encode("ascii"), place / TEMPORARY)
        disk.remove_tree(place / TEMPORARY)
        disk.sync_directory(place)


def _take_back(disk: Disk, root: Path, place: Path, journal: dict[str, Any]) -> None:
    steps = [Step(**step) for step in journal["steps"]]
    with disk_errors(f"undoing a repair of {root}"):
        # After the last step that is noted, one more write may have been done, or a group of renames.
        done = _progress(place)
        done += max(len(_moves_from(steps, done)), 1)
        for number in reversed(range(min(done, len(steps)))):
            _undo(disk, root, place, steps[number])
            _sync_names(disk, root, steps[number : number + 1])
            _note_progress(disk, place, number)
        _remove_made(disk, root, journal.get("made", ()))
        _discard(disk, place)
        if not any((root / DOCTOR).iterdir()):
            disk.remove_directory(root / DOCTOR)
            _put_back_aside(disk, root)
        disk.sync_directory(root)


def _missing_directories(root: Path, steps: Sequence[Step]) -> list[str]:
    """Return the directories that the steps will have to create, parents first."""
    targets = [PurePath(step.to) for step in steps if step.to is not None]
    parents = {parent for target in targets for parent in target.parents if not os.path.lexists(root / parent)}
    return sorted(parent.as_posix() for parent in parents)


def _remove_made(disk: Disk, root: Path, directories: Sequence[str]) -> None:
    """Remove the directories that were created, unless files were put there since."""
    for name in sorted(directories, reverse=True):
        with suppress(FileNotFoundError, NotADirectoryError):
            if not any((root / name).iterdir()):
                disk.remove_directory(root / name)
                disk.sync_directory((root / name).parent)


def _put_back_aside(disk: Disk, root: Path) -> bool:
    """Give the entry that had the name of the doctor's directory its name back."""
    if os.path.lexists(root / DOCTOR) or not os.path.lexists(root / DOCTOR_ASIDE):
        return False
    disk.move(root / DOCTOR_ASIDE, root / DOCTOR)
    disk.sync_directory(root)
    return True


def _progress(place: Path) -> int:
    path = place / _PROGRESS
    try:
        found = read_below(_root_of(place), path, _PROGRESS_BYTES_MAX)
    except (OSError, StoreLayoutError):
        found = b""
    raw = b"0" if found is None else found
    if not raw.isdigit():
        raise StoreLayoutError(f"{path} is not a number of steps, so the progress of repair {place} is unknown")
    return int(raw)


def _note_progress(disk: Disk, place: Path, done: int) -> None:
    put_bytes(disk, place / _PROGRESS, str(done).encode(), place / TEMPORARY)
    disk.sync_directory(place)


def _moves_from(steps: list[Step], start: int) -> list[Step]:
    """Return the renames that may be repeated together: none renames the target of another."""
    moves: list[Step] = []
    targets: set[str | None] = set()
    for step in steps[start : start + _MOVES_TOGETHER_MAX]:
        if step.do != "move" or step.path in targets:
            break
        moves.append(step)
        targets.add(step.to)
    return moves


def _is_quarantine(step: Step, place: Path) -> bool:
    return step.do == "move" and f"/{place.name}/{KEPT}/" in f"/{step.to}"


def _quarantines_first(steps: list[Step], place: Path) -> list[list[Step]]:
    groups = ([step for step in steps if _is_quarantine(step, place) is wanted] for wanted in (True, False))
    return [group for group in groups if group]


def _sync_names(disk: Disk, root: Path, steps: Iterable[Step]) -> None:
    """Make the names that steps changed durable, each directory once."""
    named = {(root / name).parent for step in steps for name in (step.path, step.to) if name is not None}
    for directory in sorted(named):
        if directory.is_dir():
            disk.sync_directory(directory)


def _do(disk: Disk, root: Path, place: Path, step: Step) -> None:
    path = root / step.path
    if step.do == "move":
        assert step.to is not None
        _rename(disk, path, root / step.to)
        return
    refuse_shared(root, path)
    if step.do == "write":
        assert step.new is not None
        with _data(root, place / step.new) as data:
            _write(disk, path, step.position, data, step.modified_ns)
    else:
        _resize(disk, path, step.size_bytes, step.modified_ns)


def _undo(disk: Disk, root: Path, place: Path, step: Step) -> None:
    path = root / step.path
    if step.do == "move":
        assert step.to is not None
        if path.is_dir() and os.path.lexists(root / step.to):
            _remove_empty(disk, path)  # created for files that were moved into it, and moved back
        if step.path == LOCK and path.is_file() and os.path.lexists(root / step.to):
            disk.remove_file(path)  # the lock that this repair created
        _rename(disk, root / step.to, path)
        return
    refuse_shared(root, path)
    if step.do == "write":
        assert step.old is not None
        with _data(root, place / step.old) as data:
            _write(disk, path, step.position, data, step.modified_ns)
    else:
        _resize(disk, path, step.old_size_bytes, step.modified_ns)
        if step.old is not None:
            with _data(root, place / step.old) as data:
                _write(disk, path, step.size_bytes, data, step.modified_ns)


def _data(root: Path, path: Path) -> BinaryIO:
    """Open the bytes that a step needs, which the journal keeps."""
    return os.fdopen(open_below(root, path, os.O_RDONLY), "rb")


def _remove_empty(disk: Disk, directory: Path) -> None:
    """Remove a directory and those in it, unless one has a file."""
    inside = sorted(directory.rglob("*"), reverse=True)
    if not directory.is_symlink() and all(path.is_dir() and not path.is_symlink() for path in inside):
        for path in (*inside, directory):
            disk.remove_directory(path)


def _rename(disk: Disk, source: Path, target: Path) -> None:
    """Rename unless that was done: if the target exists, the entry at the source is newer. A link is moved as one."""
    if os.path.lexists(target) or not os.path.lexists(source):
        return
    # Durably: after a crash the target must not be below a directory whose own name was lost.
    disk.make_directory(target.parent)
    disk.move(source, target)


def _write(disk: Disk, path: Path, position: int, data: BinaryIO, modified_ns: int) -> None:
    target = disk.open_plain(path)
    try:
        while chunk := data.read(_COPY_BYTES):
            target.write(position, chunk)
            position += len(chunk)
        target.set_modified(modified_ns)  # a repair is not a change that retention or a search by timestamp may see
        target.sync()
    finally:
        target.close()


def _resize(disk: Disk, path: Path, size_bytes: int, modified_ns: int) -> None:
    target = disk.open_plain(path)
    try:
        target.resize(size_bytes)
        target.set_modified(modified_ns)
        target.sync()
    finally:
        target.close()


def _identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _read_applied(path: Path) -> dict[str, list[int]]:
    try:
        applied = json.loads(read_below(_root_of(path.parent), path, _JOURNAL_BYTES_MAX) or b"")
    except (OSError, ValueError, RecursionError, StoreLayoutError):
        applied = None
    if not isinstance(applied, dict):
        raise StoreLayoutError(f"{path} does not list the files that the repair changed; --force undoes it anyway")
    return applied


def _refuse_if_changed(root: Path, journals: list[tuple[Path, dict[str, Any]]]) -> None:
    """Raise `StoreLayoutError` if a file has changed since the last journal of the run that touched it."""
    expected: dict[str, list[int]] = {}
    for place, journal in journals:
        for step in journal["steps"]:
            expected.pop(step["path"], None)
            expected.pop(step["to"], None)
        applied = place / _APPLIED
        if applied.exists():  # else it was killed, and its changed files are not known
            expected |= _read_applied(applied)
    for name, identity in expected.items():
        path = root / name
        if not path.exists() or _identity(path) != identity:
            raise StoreLayoutError(
                f"{path} was changed since it was repaired, perhaps by a broker; an undo would destroy that change"
                " (--force does it anyway)"
            )
