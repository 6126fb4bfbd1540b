"""Crash images: the possible states of a file's pages and of a directory's entries after a power cut.

The kernel writes dirty pages at any time and in any order, so each page of a mapped file may have any of its states
since the last sync, and a torn page a mix of them by sector. Directories are journaled: their changes reach the disk in
order, and a crash preserves a prefix of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random

PAGE_BYTES = 4096
SECTOR_BYTES = 512


class Survival(Enum):
    """How much unsynced data survives a crash. Real crashes are `ANY`; the extremes expose further bugs."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    ANY = "any"


@dataclass(slots=True)
class Inode:
    """The content of a file: current, durable, and all states of each page in between."""

    content: bytearray
    durable: bytearray
    is_sized: bool = True
    modified_ms: int = 0
    allocated: set[int] = field(default_factory=set)
    _versions: dict[int, list[bytes]] = field(default_factory=dict)
    _dirty: set[int] = field(default_factory=set)

    @classmethod
    def of_zeros(cls, size_bytes: int) -> Inode:
        """Return a new file; until its first sync its size may be lost."""
        return cls(bytearray(size_bytes), bytearray(size_bytes), is_sized=False)

    @classmethod
    def of_durable(cls, content: bytes) -> Inode:
        """Return a durable file; only pages with non-zero bytes are allocated."""
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

    def note_written(self, start: int, stop: int) -> None:
        """Record the current state of the pages of a range: any recorded state may reach the disk."""
        for page in self.pages(start, stop):
            now, versions = self._page(page), self._versions.setdefault(page, [])
            if not versions or versions[-1] != now:
                versions.append(now)
            self._dirty.add(page)

    def sync(self) -> None:
        for page in self._dirty:
            self._versions.pop(page, None)
            self.durable[page * PAGE_BYTES : (page + 1) * PAGE_BYTES] = self._page(page)
        self._dirty.clear()
        self.is_sized = True

    def fail_sync(self) -> None:
        """Mark pages as clean, as Linux does: a later sync succeeds, but they may never reach the disk."""
        self._dirty.clear()

    def copy(self) -> Inode:
        versions = {page: list(kept) for page, kept in self._versions.items()}
        content, durable = bytearray(self.content), bytearray(self.durable)
        state = self.is_sized, self.modified_ms, set(self.allocated)
        return Inode(content, durable, *state, versions, set(self._dirty))

    def crashed(self, chance: Random, survival: Survival) -> Inode:
        """Return a possible state of the file after a crash."""
        if not self.is_sized and (survival is Survival.NOTHING or chance.random() < 0.3):
            return Inode.of_durable(b"")
        content = bytearray(self.durable)
        for page, versions in sorted(self._versions.items()):
            start = page * PAGE_BYTES
            candidates = [bytes(self.durable[start : start + PAGE_BYTES]), *versions]
            content[start : start + PAGE_BYTES] = _pick(candidates, chance, survival)
        return Inode.of_durable(bytes(content))


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
    """Marks a removed name."""

    GONE = "gone"


class Folder(Enum):
    """Marks the name of a directory, whose entries are kept separately."""

    FOLDER = "folder"


Entry = Inode | Folder
Change = dict[str, Entry | Gone]


@dataclass(slots=True)
class Directory:
    """The entries of one directory: current, durable, and the pending changes in between."""

    entries: dict[str, Entry] = field(default_factory=dict)
    durable: dict[str, Entry] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        """Apply a change that is atomic in a crash."""
        self.pending.append(change)
        _apply(change, self.entries)

    def sync(self) -> None:
        self.durable = dict(self.entries)
        self.pending.clear()

    def crashed(self, chance: Random, survival: Survival) -> dict[str, Entry]:
        """Return a possible state of the entries after a crash."""
        kept = {Survival.NOTHING: 0, Survival.EVERYTHING: len(self.pending)}.get(survival)
        entries = dict(self.durable)
        for change in self.pending[: chance.randint(0, len(self.pending)) if kept is None else kept]:
            _apply(change, entries)
        return entries


def _apply(change: Change, entries: dict[str, Entry]) -> None:
    for name, entry in change.items():
        if isinstance(entry, Gone):
            entries.pop(name, None)
        else:
            entries[name] = entry
