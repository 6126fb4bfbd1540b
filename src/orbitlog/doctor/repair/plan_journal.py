"""Plan journal: records the steps that a repair would take, and writes nothing.

`RepairJournal` records the same steps, keeps the bytes that each needs, and carries them out: planners do not know
which of both they fill in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from orbitlog.doctor.finding_kinds import Planner
from orbitlog.errors import StoreLayoutError
from orbitlog.formats.store_tree import COMMITLOG, DOCTOR

JOURNAL, KEPT, NEW = "journal.json", "kept", "new"


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `path` and `to` are below the store, `old` and `new` below the journal.

    write: bytes of `new` at `position` of `path`; `old` has the bytes that were there. resize: `path` becomes
    `size_bytes` long; `old` has the end that is cut off. move: `path` becomes `to`.
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


def journal_places(root: Path) -> Iterator[Path]:
    """Yield the directories of journals, the oldest first."""
    directory = root / DOCTOR
    if _is_directory(directory):
        yield from sorted(path for path in directory.iterdir() if path.name.isdecimal() and _is_directory(path))


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


@dataclass(slots=True)
class PlanJournal:
    """The steps of one repair; `place` is the directory that its journal has, or would have."""

    root: Path
    place: Path
    run: str
    title: str
    steps: list[Step] = field(default_factory=list)
    planners: list[Planner] = field(default_factory=list)
    """The planners that planned a step."""

    @classmethod
    def dry(cls, root: Path, title: str, *, earlier: int = 0, run: str | None = None) -> PlanJournal:
        """Return a journal that is not written; `earlier` journals of the same run come before it."""
        # A run that was killed before it wrote its steps leaves a directory that the next one removes.
        numbers = [int(place.name) for place in journal_places(root) if (place / JOURNAL).exists()]
        name = f"{max(numbers, default=0) + 1 + earlier:06d}"
        return cls(root, root / DOCTOR / name, run or name, title)

    @property
    def new(self) -> Path:
        """The directory for files that replace others."""
        return self.place / NEW

    @property
    def actions(self) -> list[str]:
        """The steps as sentences, for the operator."""
        return [f"{self.root / step.path}: {step.why}" for step in self.steps]

    def write(self, path: Path, position: int, data: bytes, why: str) -> None:
        """Change bytes of a file in place."""
        number = len(self.steps)
        self._keep_range(f"{KEPT}/{number}", path, position, len(data))
        self._keep(f"{NEW}/{number}", data)
        self.steps.append(
            Step(
                "write",
                self._relative(path),
                why,
                position=position,
                old=f"{KEPT}/{number}",
                new=f"{NEW}/{number}",
                modified_ns=path.stat().st_mtime_ns,
            )
        )

    def resize(self, path: Path, size_bytes: int, why: str) -> None:
        """Cut a file, or extend it with zeros."""
        status = path.stat()
        old = None
        if size_bytes < status.st_size:
            old = f"{KEPT}/{len(self.steps)}"
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

    def quarantine(self, path: Path, why: str) -> Path:
        """Move a file or directory out of the store, into the journal; returns its path there."""
        kept = self.place / KEPT / f"{len(self.steps)}-{path.name}"
        self.steps.append(Step("move", self._relative(path), why, to=self._relative(kept)))
        return kept

    def put(self, made: Path, target: Path, why: str) -> None:
        """Move a new file or directory to its path, which is free by then."""
        self.steps.append(Step("move", self._relative(made), why, to=self._relative(target)))

    def replace(self, made: Path, target: Path, why: str) -> None:
        """Quarantine the file or directory that exists, and put the new one in its place."""
        if os.path.lexists(target):
            self.quarantine(target, f"{why}: the old one is kept")
        self.put(made, target, why)

    def put_file(self, target: Path, data: bytes, why: str) -> None:
        """Replace a small file by these bytes."""
        made = f"{NEW}/{len(self.steps)}-{target.name}"
        self._keep(made, data)
        self.replace(self.place / made, target, why)

    def put_sparse_file(self, target: Path, data: bytes, size_bytes: int, why: str) -> None:
        """Create a file of that size that starts with these bytes; the rest is a hole."""
        made = f"{NEW}/{len(self.steps)}-{target.name}"
        self._keep(made, data, size_bytes=size_bytes)
        self.put(self.place / made, target, why)

    def _keep(self, name: str, data: bytes, *, size_bytes: int | None = None) -> None:
        """Keep bytes that a step needs: a plan needs none."""

    def _keep_range(self, name: str, path: Path, position: int, count: int) -> None:
        """Keep bytes of a file that a step replaces: a plan needs none."""

    def _keep_end(self, name: str, path: Path, start: int) -> None:
        """Keep the end of a file that a step cuts off: a plan needs none."""

    def _relative(self, path: Path) -> str:
        """Return the path below the root; a journal names nothing outside, so a foreign store cannot reach other files.

        Raise `StoreLayoutError` for a path outside, such as that of a segment below storePathCommitLog.
        """
        for root in (self.root, self.root.absolute()):
            if path.is_relative_to(root):
                return path.relative_to(root).as_posix()
        raise StoreLayoutError(
            f"{path} is outside {self.root}, where repairs change nothing: copy the CommitLog directories to"
            f" {self.root / COMMITLOG}, repair without storePathCommitLog, and copy the segments back"
        )
