"""What may be found on a disk after the power went: of one file's pages, and of one directory's names.

The kernel writes dirty pages when it likes and in any order, so that each page of a mapped file may be found as it
was at any moment since the last sync, and a torn one sector by sector. Names are kinder: the changes of a directory
reach the disk in their order, and a crash leaves some first part of them. A rename between two directories is one
change of both: a crash leaves it done or not done, as the journal of a file system does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class Survival(Enum):
    """What a crash spares of all that was not synced; real ones are mostly `ANY`, bugs like the other two as well."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    ANY = "any"


@dataclass(slots=True)
class Inode:
    """A file's bytes: as they are read now, as they surely are on the disk, and as each page was in between."""

    content: bytearray
    durable: bytearray
    is_sized: bool = True
    modified_ms: int = 0
    allocated: set[int] = field(default_factory=set)
    _versions: dict[int, list[bytes]] = field(default_factory=dict)
    _dirty: set[int] = field(default_factory=set)

    @classmethod
    def of_zeros(cls, size_bytes: int) -> Inode:
        """A new file; until its first sync the disk may know nothing of its size."""
        return cls(bytearray(size_bytes), bytearray(size_bytes), is_sized=False)

    @classmethod
    def of_durable(cls, content: bytes) -> Inode:
        """A file that is on the disk; only pages that hold something are known to have blocks."""
        inode = cls(bytearray(content), bytearray(content))
        inode.allocated = {page for page in inode.pages(0, len(content)) if any(inode._page(page))}
        return inode

    @property
    def has_unsynced(self) -> bool:
        return bool(self._versions) or not self.is_sized

    def pages(self, start: int, stop: int) -> range:
        return range(start // PAGE_BYTES, -(-stop // PAGE_BYTES))

    def _page(self, page: int) -> bytes:
        return bytes(self.content[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])

    def resize(self, size_bytes: int) -> None:
        """Cut the file, or extend it with a hole; until the next sync a crash may leave the old size."""
        if size_bytes < len(self.content):
            del self.content[size_bytes:]
            kept = set(self.pages(0, size_bytes))
            self._versions = {page: found for page, found in self._versions.items() if page in kept}
            self._dirty &= kept
        else:
            self.content.extend(bytes(size_bytes - len(self.content)))

    def note_written(self, start: int, stop: int) -> None:
        """Keep the pages of a range as they are now: any of them may be the one that reaches the disk."""
        for page in self.pages(start, stop):
            now, versions = self._page(page), self._versions.setdefault(page, [])
            if not versions or versions[-1] != now:
                versions.append(now)
            self._dirty.add(page)

    def sync(self) -> None:
        del self.durable[len(self.content) :]
        self.durable.extend(bytes(len(self.content) - len(self.durable)))
        for page in self._dirty:
            self._versions.pop(page, None)
            self.durable[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = self._page(page)
        self._dirty.clear()
        self.is_sized = True

    def fail_sync(self) -> None:
        """Forget that pages are dirty, as Linux does: a later sync succeeds, and they may never reach the disk."""
        self._dirty.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> Inode:
        return memo.setdefault(id(self), self.copy())  # type: ignore[no-any-return]

    def copy(self) -> Inode:
        versions = {page: list(kept) for page, kept in self._versions.items()}
        content, durable = bytearray(self.content), bytearray(self.durable)
        state = self.is_sized, self.modified_ms, set(self.allocated)
        return Inode(content, durable, *state, versions, set(self._dirty))

    def crashed(self, chance: Random, survival: Survival) -> Inode:
        """Return the file as it may be found after a crash."""
        if not self.is_sized and (survival is Survival.NOTHING or chance.random() < 0.3):
            return Inode.of_durable(b"")
        size_bytes = len(self.content)
        found = bytearray(self.durable[:size_bytes].ljust(size_bytes, b"\0"))
        for page, versions in sorted(self._versions.items()):
            start = page * PAGE_BYTES
            page_bytes = min(PAGE_BYTES, size_bytes - start)
            candidates = [
                version[:page_bytes].ljust(page_bytes, b"\0")
                for version in (bytes(self.durable[start : start + PAGE_BYTES]), *versions)
            ]
            found[start : start + page_bytes] = _pick(candidates, chance, survival)
        if self.is_sized and len(self.durable) != size_bytes:
            is_old = survival is Survival.NOTHING or (survival is Survival.ANY and chance.random() < 0.5)
            if is_old:  # the new size did not reach the disk
                found = found[: len(self.durable)] + self.durable[size_bytes:]
        return Inode.of_durable(bytes(found))


def _pick(candidates: list[bytes], chance: Random, survival: Survival) -> bytes:
    if survival is Survival.NOTHING:
        return candidates[0]
    if survival is Survival.EVERYTHING:
        return candidates[-1]
    if chance.random() < 0.6:
        return chance.choice(candidates)
    size_bytes = len(candidates[0])
    torn = (chance.choice(candidates)[at : at + SECTOR_BYTES] for at in range(0, size_bytes, SECTOR_BYTES))
    return b"".join(torn)


class Gone(Enum):
    """What a name stands for after its file was removed."""

    GONE = "gone"


@dataclass(slots=True, eq=False)
class Change:
    """One change of the names in a directory; a rename between directories has the other half in `partner`."""

    names: dict[str, Entry | Gone]
    partner: tuple[Directory, Change] | None = None


@dataclass(slots=True, eq=False)
class Directory:
    """The names of one directory: as they are, as they surely are on the disk, and the changes in between."""

    entries: dict[str, Entry] = field(default_factory=dict)
    durable: dict[str, Entry] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def change(self, names: dict[str, Entry | Gone]) -> Change:
        """Make one change that a crash leaves whole or undone."""
        change = Change(names)
        self.pending.append(change)
        _apply(change, self.entries)
        return change

    def sync(self) -> None:
        self._commit(len(self.pending))

    def _commit(self, count: int) -> None:
        """Make the first pending changes durable, and the other halves of renames with all before them."""
        committed, self.pending = self.pending[:count], self.pending[count:]
        for change in committed:
            _apply(change, self.durable)
        for change in committed:
            if change.partner is not None:
                directory, other = change.partner
                if other in directory.pending:
                    directory._commit(directory.pending.index(other) + 1)

    def crashed(self, kept: int) -> dict[str, Entry]:
        """Return the names that are found after a crash that left the first `kept` changes."""
        found = dict(self.durable)
        for change in self.pending[:kept]:
            _apply(change, found)
        return found

    def reachable(self) -> Iterator[Directory]:
        """Yield the directory and those below it: now, on the disk, or in between."""
        yield self
        seen = {id(self)}
        tables: list[Mapping[str, Entry | Gone]] = [self.entries, self.durable]
        tables += [change.names for change in self.pending]
        named = sorted((item for table in tables for item in table.items()), key=lambda item: item[0])
        for _, entry in named:
            if isinstance(entry, Directory) and id(entry) not in seen:
                seen.add(id(entry))
                yield from entry.reachable()


Entry = Inode | Directory


def kept_changes(roots: Iterable[Directory], chance: Random, survival: Survival) -> dict[int, int]:
    """Return for each directory, by its id, how many of its pending changes a crash leaves.

    Both halves of a rename are left, or none: the half that was not chosen is added, with all before it.
    """
    directories = {id(one): one for root in roots for one in root.reachable()}
    kept = {Survival.NOTHING: lambda _: 0, Survival.EVERYTHING: len}.get(
        survival, lambda pending: chance.randint(0, len(pending))
    )
    counts = {key: kept(directory.pending) for key, directory in directories.items()}
    todo = list(directories.values())
    while todo:
        directory = todo.pop()
        for change in directory.pending[: counts[id(directory)]]:
            if change.partner is not None:
                other, half = change.partner
                needed = other.pending.index(half) + 1 if id(other) in counts else 0
                if counts.get(id(other), 0) < needed:
                    counts[id(other)] = needed
                    todo.append(other)
    return counts


def _apply(change: Change, entries: dict[str, Entry]) -> None:
    for name, entry in change.names.items():
        if isinstance(entry, Gone):
            entries.pop(name, None)
        else:
            entries[name] = entry
