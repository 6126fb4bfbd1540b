"""What a repair changes, written down before it changes anything: carried out, taken up after a kill, or taken back.

    .orbitlog-doctor/000001/journal.json   the steps; once it is there the repair is carried out, now or by the next run
    .orbitlog-doctor/000001/kept/…         bytes and files that stood before
    .orbitlog-doctor/000001/new/…          bytes and files that take their place
    .orbitlog-doctor/000001/applied        every step was carried out, and what the changed files looked like then
    .orbitlog-doctor/000001/undoing        it is being taken back
    .orbitlog-doctor/000001/progress       how many steps stand

Progress is noted after each write, and after some renames at a time, so a kill leaves steps of which it is not known
whether they were done. They may be repeated with the same effect: a rename that has its target was done. Of renames
that are noted together those into the journal come first, and are on the disk before any of the others is begun.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from orbitlog.errors import StoreLayoutError
from orbitlog.formats.store_tree import COMMITLOG, DOCTOR, LOCK
from orbitlog.jobs.staging import TEMPORARY, put_bytes, remove_tree, sync_directory, sync_tree, write_all
from orbitlog.storefiles.disk import disk_errors
from orbitlog.storefiles.mapped_view import written_until
from orbitlog.storefiles.store_contents import REPAIRABLE, refuse_writing

DOCTOR_ASIDE = f"{DOCTOR}.aside"  # what stood in the place of the directory
_JOURNAL, _APPLIED, _UNDOING, _PROGRESS = "journal.json", "applied", "undoing", "progress"
_KEPT, _NEW = "kept", "new"
_COPY_BYTES = 1 << 20
_MOVES_TOGETHER_MAX = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `path` and `to` are below the store, `old` and `new` below the journal.

    write: bytes of `new` at `position` of `path`; `old` has those that stood there. resize: `path` becomes
    `size_bytes` long; `old` has what is cut off. move: `path` becomes `to`.
    """

    do: str
    path: str
    why: str
    position: int = 0
    size_bytes: int = 0
    old_size_bytes: int = 0
    old: str | None = None
    new: str | None = None
    to: str | None = None
    modified_ns: int = 0


def _plain(step: Step) -> dict[str, Any]:
    return {name: getattr(step, name) for name in Step.__slots__}


@dataclass(slots=True)
class RepairJournal:
    """The steps of one repair, gathered and then carried out."""

    root: Path
    place: Path
    run: str
    title: str
    steps: list[Step] = field(default_factory=list)

    @classmethod
    def begin(cls, root: Path, title: str, *, run: str | None = None) -> RepairJournal:
        """Make the directory of a new journal; what a run left that never wrote its steps down is removed."""
        for place in _places(root):
            if not (place / _JOURNAL).exists():
                remove_tree(place)
        numbers = [int(place.name) for place in _places(root)]
        name = f"{max(numbers, default=0) + 1:06d}"
        place = root / DOCTOR / name
        with disk_errors(f"making {place}"):
            (place / _NEW).mkdir(parents=True)
            (place / _KEPT).mkdir()
        return cls(root, place, run or name, title)

    @property
    def new(self) -> Path:
        """The directory for what takes the place of something."""
        return self.place / _NEW

    def write(self, path: Path, position: int, data: bytes, why: str) -> None:
        """Change bytes of a file in place."""
        number = len(self.steps)
        with path.open("rb") as file:
            old = os.pread(file.fileno(), len(data), position)
        assert len(old) == len(data), "a write stays inside its file"
        self._keep(f"{_KEPT}/{number}", old)
        self._keep(f"{_NEW}/{number}", data)
        self.steps.append(
            Step(
                "write",
                self._relative(path),
                why,
                position=position,
                old=f"{_KEPT}/{number}",
                new=f"{_NEW}/{number}",
                modified_ns=path.stat().st_mtime_ns,
            )
        )

    def resize(self, path: Path, size_bytes: int, why: str) -> None:
        """Cut a file, or let zeros follow it."""
        status = path.stat()
        old = None
        if size_bytes < status.st_size:
            old = f"{_KEPT}/{len(self.steps)}"
            self._keep_end(old, path, size_bytes)
        self.steps.append(
            Step(
                "resize",
                self._relative(path),
                why,
                size_bytes=size_bytes,
                old_size_bytes=status.st_size,
                old=old,
                modified_ns=status.st_mtime_ns,
            )
        )

    def set_aside(self, path: Path, why: str) -> None:
        """Take a file or directory out of the store, into the journal."""
        kept = self.place / _KEPT / f"{len(self.steps)}-{path.name}"
        self.steps.append(Step("move", self._relative(path), why, to=self._relative(kept)))

    def put(self, made: Path, target: Path, why: str) -> None:
        """Bring what was made into its place, which is free by then."""
        self.steps.append(Step("move", self._relative(made), why, to=self._relative(target)))

    def replace(self, made: Path, target: Path, why: str) -> None:
        """Set aside what stands, and put what was made in its place."""
        if os.path.lexists(target):
            self.set_aside(target, f"{why}: what stood before is kept")
        self.put(made, target, why)

    def put_file(self, target: Path, data: bytes, why: str) -> None:
        """Replace a small file by these bytes."""
        made = self.new / f"{len(self.steps)}-{target.name}"
        put_bytes(made, data, self.place / TEMPORARY)
        self.replace(made, target, why)

    def carry_out(self) -> None:
        """Write the steps down, and then do them."""
        for directory in (self.place / _KEPT, self.new):
            sync_tree(directory)
        steps = [_plain(step) for step in self.steps]
        told = {
            "run": self.run,
            "title": self.title,
            "steps": steps,
            "made": _missing_directories(self.root, self.steps),
        }
        # Names of files need not be text: what is none is escaped, which orjson does not do.
        put_bytes(self.place / _JOURNAL, json.dumps(told).encode("ascii"), self.place / TEMPORARY)
        remove_tree(self.place / TEMPORARY)
        sync_directory(self.place)
        sync_directory(self.place.parent)
        sync_directory(self.root)
        _apply(self.root, self.place, self.steps)

    def forget(self) -> None:
        """Remove a journal that was never carried out."""
        remove_tree(self.place)
        if not any(_places(self.root)) and (self.root / DOCTOR).is_dir():
            (self.root / DOCTOR).rmdir()

    def _keep(self, name: str, data: bytes) -> None:
        put_bytes(self.place / name, data, self.place / TEMPORARY)

    def _keep_end(self, name: str, path: Path, start: int) -> None:
        """Keep what a file holds from a position on, but for the hole that it ends with: that is made by its size."""
        with path.open("rb") as file, (self.place / name).open("xb") as kept:
            position, end = start, written_until(path)
            while chunk := os.pread(file.fileno(), max(min(_COPY_BYTES, end - position), 0), position):
                kept.write(chunk)
                position += len(chunk)

    def _relative(self, path: Path) -> str:
        """Return the path below the root; a journal names nothing outside, so that no store leads to other files."""
        for root in (self.root, self.root.absolute()):
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
        raise StoreLayoutError(
            f"{path} is outside {self.root}, where repairs change nothing: copy the CommitLog directories to"
            f" {self.root / COMMITLOG}, repair without storePathCommitLog, and copy the segments back"
        )


def finish_interrupted(root: Path, *, only: str | None = None) -> list[str]:
    """End what a killed run had begun, forwards or backwards; returns the titles of those.

    With `only`, that of one title; others may be whatever they are.
    """
    ended = []
    broken = set(unreadable_journals(root)) if only is not None else set()
    for place in _places(root):
        told = _read(place) if place not in broken else None
        if told is None or only not in (None, told["title"]):
            continue
        if (place / _UNDOING).exists():
            _take_back(root, place, told)
            ended.append(f"taking back: {told['title']}")
        elif not (place / _APPLIED).exists():
            _apply(root, place, [Step(**step) for step in told["steps"]])
            ended.append(told["title"])
    return ended


def interrupted(root: Path) -> list[Path]:
    """Return the journals that a killed run left in the middle."""
    return [
        place
        for place in _places(root)
        if _read(place) is not None and ((place / _UNDOING).exists() or not (place / _APPLIED).exists())
    ]


def is_applied(place: Path) -> bool:
    """Tell whether a journal's steps were all carried out."""
    return (place / _APPLIED).exists() and not (place / _UNDOING).exists()


def unreadable_journals(root: Path) -> Iterator[Path]:
    """Yield the journals that are none, or do not say how far they came."""
    for place in _places(root):
        try:
            if _read(place) is not None and not is_applied(place):
                _progress(place)
        except StoreLayoutError:
            yield place


def undo_last(root: Path, *, force: bool = False) -> list[str]:
    """Take back the last run, its last journal first; returns what was taken back, step by step."""
    refuse_writing(root, except_for=REPAIRABLE)
    journals = [(place, told) for place in _places(root) if (told := _read(place)) is not None]
    if not journals:
        if _put_back_aside(root):
            return [f"{DOCTOR}: is what it was"]
        raise StoreLayoutError(f"{root} has no repair that could be taken back")
    run = journals[-1][1]["run"]
    wanted = [(place, told) for place, told in journals if told["run"] == run]
    if not force:
        _refuse_if_changed(root, wanted)
    for place, _ in wanted:
        _progress(place)  # before anything is taken back
    taken_back: list[str] = []
    for place, told in reversed(wanted):
        put_bytes(place / _UNDOING, b"", place / TEMPORARY)
        sync_directory(place)
        taken_back += [f"{step['path']}: {step['why']}" for step in reversed(told["steps"])]
        _take_back(root, place, told)
    return taken_back


def discard_kept(root: Path) -> int:
    """Remove every journal with what it keeps: nothing can be taken back then. Returns how many there were."""
    places = list(_places(root))
    if interrupted(root):
        raise StoreLayoutError(f"a repair of {root} was interrupted; run it again, or undo it, before discarding")
    remove_tree(root / DOCTOR)
    return len(places)


def _places(root: Path) -> Iterator[Path]:
    directory = root / DOCTOR
    if directory.is_dir():
        yield from sorted(path for path in directory.iterdir() if path.name.isdecimal() and path.is_dir())


def _read(place: Path) -> dict[str, Any] | None:
    path = place / _JOURNAL
    if not path.exists():
        return None
    try:
        told: dict[str, Any] = json.loads(path.read_bytes())
        steps = [Step(**step) for step in told["steps"]]
        is_sound = isinstance(told["title"], str) and isinstance(told["run"], str)
        is_sound = is_sound and all(_stays_inside(name) for step in steps for name in (step.path, step.to or "."))
        is_sound = is_sound and all(_stays_inside(name or ".") for step in steps for name in (step.old, step.new))
        is_sound = is_sound and all(_stays_inside(name) for name in told.get("made", ()))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        is_sound = False
    if not is_sound:
        raise StoreLayoutError(
            f"{path} is no journal of a repair, and nothing is mended or taken back by it; move {place} away"
        )
    return told


def _stays_inside(name: str) -> bool:
    """Tell whether a name leads to a place below: a store that somebody sent must not lead to other files."""
    return not name.startswith("/") and ".." not in name.split("/")


def _apply(root: Path, place: Path, steps: list[Step]) -> None:
    with disk_errors(f"repairing {root}"):
        done = _progress(place)
        while done < len(steps):
            together = _moves_from(steps, done) or steps[done : done + 1]
            for group in _asides_first(together, place):
                for step in group:
                    _do(root, place, step)
                _sync_places(root, group)
            done += len(together)
            _note_progress(place, done)
        changed = {step.path: _identity(root / step.path) for step in steps if step.do != "move"}
        put_bytes(place / _APPLIED, json.dumps(changed).encode("ascii"), place / TEMPORARY)
        remove_tree(place / TEMPORARY)
        sync_directory(place)


def _take_back(root: Path, place: Path, told: dict[str, Any]) -> None:
    steps = [Step(**step) for step in told["steps"]]
    with disk_errors(f"taking back a repair of {root}"):
        # Behind the last step that is noted one more may have been done, or some renames.
        done = _progress(place)
        done += max(len(_moves_from(steps, done)), 1)
        for number in reversed(range(min(done, len(steps)))):
            _undo(root, place, steps[number])
            _sync_places(root, steps[number : number + 1])
            _note_progress(place, number)
        _remove_made(root, told.get("made", ()))
        (place / _JOURNAL).unlink()  # from here on it is rubbish
        remove_tree(place)
        if not any((root / DOCTOR).iterdir()):
            (root / DOCTOR).rmdir()
            _put_back_aside(root)


def _missing_directories(root: Path, steps: Sequence[Step]) -> list[str]:
    """Name the directories that the steps will have to make, each behind those that it lies in."""
    targets = [PurePath(step.to) for step in steps if step.to is not None]
    parents = {parent for target in targets for parent in target.parents if not os.path.lexists(root / parent)}
    return sorted(parent.as_posix() for parent in parents)


def _remove_made(root: Path, directories: Sequence[str]) -> None:
    """Remove directories that were made, unless something was put there since."""
    for name in sorted(directories, reverse=True):
        with suppress(FileNotFoundError, NotADirectoryError):
            if not any((root / name).iterdir()):
                (root / name).rmdir()


def _put_back_aside(root: Path) -> bool:
    """Give what stood in the place of the doctor's directory its name again."""
    if os.path.lexists(root / DOCTOR) or not os.path.lexists(root / DOCTOR_ASIDE):
        return False
    (root / DOCTOR_ASIDE).rename(root / DOCTOR)
    return True


def _progress(place: Path) -> int:
    path = place / _PROGRESS
    raw = path.read_bytes() if path.is_file() else b"" if path.exists() else b"0"
    if not raw.isdigit():
        raise StoreLayoutError(f"{path} holds no number of steps; what the repair of {place} did cannot be told")
    return int(raw)


def _note_progress(place: Path, done: int) -> None:
    put_bytes(place / _PROGRESS, str(done).encode(), place / TEMPORARY)
    sync_directory(place)


def _moves_from(steps: list[Step], start: int) -> list[Step]:
    """Return the renames that may be repeated together: none takes away what another one of them brings."""
    found: list[Step] = []
    brought: set[str | None] = set()
    for step in steps[start : start + _MOVES_TOGETHER_MAX]:
        if step.do != "move" or step.path in brought:
            break
        found.append(step)
        brought.add(step.to)
    return found


def _is_aside(step: Step, place: Path) -> bool:
    return step.do == "move" and f"/{place.name}/{_KEPT}/" in f"/{step.to}"


def _asides_first(steps: list[Step], place: Path) -> list[list[Step]]:
    groups = ([step for step in steps if _is_aside(step, place) is wanted] for wanted in (True, False))
    return [group for group in groups if group]


def _sync_places(root: Path, steps: Iterable[Step]) -> None:
    """Take the names that were changed to the disk, each directory once."""
    named = {(root / name).parent for step in steps for name in (step.path, step.to) if name is not None}
    for directory in sorted(named):
        if directory.is_dir():
            sync_directory(directory)


def _do(root: Path, place: Path, step: Step) -> None:
    path = root / step.path
    if step.do == "move":
        assert step.to is not None
        _rename(path, root / step.to)
    elif step.do == "write":
        assert step.new is not None
        _write(path, step.position, place / step.new, step.modified_ns)
    else:
        _resize(path, step.size_bytes, step.modified_ns)


def _undo(root: Path, place: Path, step: Step) -> None:
    path = root / step.path
    if step.do == "move":
        assert step.to is not None
        if path.is_dir() and os.path.lexists(root / step.to):
            _remove_empty(path)  # made for files that were moved into it, and are gone again
        if step.path == LOCK and path.is_file() and os.path.lexists(root / step.to):
            path.unlink()  # ours: what stood there was no lock
        _rename(root / step.to, path)
    elif step.do == "write":
        assert step.old is not None
        _write(path, step.position, place / step.old, step.modified_ns)
    else:
        _resize(path, step.old_size_bytes, step.modified_ns)
        if step.old is not None:
            _write(path, step.size_bytes, place / step.old, step.modified_ns)


def _remove_empty(directory: Path) -> None:
    """Remove a directory and those in it, unless a file lies there."""
    inside = sorted(directory.rglob("*"), reverse=True)
    if not directory.is_symlink() and all(path.is_dir() and not path.is_symlink() for path in inside):
        for path in (*inside, directory):
            path.rmdir()


def _rename(source: Path, target: Path) -> None:
    """Rename unless it was done: where the target stands, what is at the source came later. A link is moved as one."""
    if os.path.lexists(target) or not os.path.lexists(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _write(path: Path, position: int, data_path: Path, modified_ns: int) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        with data_path.open("rb") as file:
            while chunk := file.read(_COPY_BYTES):
                write_all(descriptor, chunk, position)
                position += len(chunk)
        _settle(descriptor, modified_ns)
    finally:
        os.close(descriptor)


def _resize(path: Path, size_bytes: int, modified_ns: int) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(descriptor, size_bytes)
        _settle(descriptor, modified_ns)
    finally:
        os.close(descriptor)


def _settle(descriptor: int, modified_ns: int) -> None:
    """Keep the file's time, which retention and Java's search by time go by, and take all to the disk."""
    os.utime(descriptor, ns=(modified_ns, modified_ns))
    os.fsync(descriptor)


def _identity(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _read_applied(path: Path) -> dict[str, list[int]]:
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise StoreLayoutError(f"{path} does not say what the repair left; --force takes it back all the same")
    return told


def _refuse_if_changed(root: Path, journals: list[tuple[Path, dict[str, Any]]]) -> None:
    """Refuse where a file looks otherwise than the last of a run's journals that touched it left it."""
    expected: dict[str, list[int]] = {}
    for place, told in journals:
        for step in told["steps"]:
            expected.pop(step["path"], None)
            expected.pop(step["to"], None)
        applied = place / _APPLIED
        if applied.exists():  # else it was killed on its way, and nobody knows how far that is
            expected |= _read_applied(applied)
    for name, identity in expected.items():
        path = root / name
        if not path.exists() or _identity(path) != identity:
            raise StoreLayoutError(
                f"{path} was changed since it was repaired, by a broker perhaps; taking the repair back would destroy"
                " that (--force does it all the same)"
            )
