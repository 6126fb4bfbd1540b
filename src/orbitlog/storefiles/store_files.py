"""Store files: lists the files of a store directory without opening or changing them.

`find_store_files` lists a whole store; the smaller functions list one of its directories, for tools that were
pointed at a part. Every entry is either known or reported as foreign, and a symbolic link is followed only while
it stays inside: a store from elsewhere cannot make a reader open other files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.store_state import CONFIRMED_FILE, RECOVERY_FILE, REPLICA_FILE, STATE_FILE
from orbitlog.formats.records.dledger import INDEX_UNIT_BYTES
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.settings.store_settings import DLEDGER_PATH, StoreSettings
from orbitlog.storefiles.store_paths import StorePaths

# Brokers make these too; nothing here reads them.
_UNREAD_ENTRIES = frozenset(
    (
        tree.ABORT + tree.BACKUP_SUFFIX,
        tree.CHECKPOINT + tree.BACKUP_SUFFIX,
        tree.DOCTOR,
        CONFIRMED_FILE,
        RECOVERY_FILE,
        REPLICA_FILE,
        STATE_FILE,
        "brokerIdentity",
        "compaction",
        "epochFileCheckpoint",
        "rocksdbstore",
        "transaction",
    )
)
# What else may stand under these names keeps a broker from making its own.
ROOT_ENTRIES = frozenset(
    (
        tree.COMMITLOG,
        tree.CONSUMEQUEUE,
        tree.INDEX,
        tree.CONFIG,
        tree.TIMER_LOG,
        tree.TIMER_WHEEL,
        tree.CHECKPOINT,
        tree.ABORT,
        tree.LOCK,
    )
)
_LOOKED_FOR = "commitlog/, consumequeue/, index/, config/topics.json, checkpoint and dledger-*/data"
_SHOWN_ENTRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class OffsetFile:
    """A file that is named after the number of its first byte."""

    path: Path
    base: int
    size_bytes: int
    log_format: LogFormat = LogFormat.ORDINARY
    """How a segment of the log stores its records."""


@dataclass(frozen=True, slots=True)
class SizedFile:
    """A file and its size."""

    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ForeignEntry:
    """An entry that does not belong to a store."""

    path: Path
    reason: str


_ROCKSDB_MARK = "CURRENT"
QueueTable = Mapping[tuple[str, int], tuple[OffsetFile, ...]]


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """The files of one store, each kind in its own order.

    `segments` is the whole log: the files of commitlog/, then the data files of the DLedger directory, if exactly one
    has any. `dledger_segments` has those of every DLedger directory.
    """

    root: Path
    segments: tuple[OffsetFile, ...] = ()
    dledger_segments: Mapping[str, tuple[OffsetFile, ...]] = field(default_factory=dict)
    queues: QueueTable = field(default_factory=dict)
    ext_queues: QueueTable = field(default_factory=dict)
    batch_queues: QueueTable = field(default_factory=dict)
    index_files: tuple[SizedFile, ...] = ()
    config_files: tuple[SizedFile, ...] = ()
    timer_log: tuple[OffsetFile, ...] = ()
    timer_wheel: SizedFile | None = None
    checkpoint: SizedFile | None = None
    abort: SizedFile | None = None
    lock: SizedFile | None = None
    unread: tuple[Path, ...] = ()
    foreign: tuple[ForeignEntry, ...] = ()
    given_paths: StorePaths | None = None

    @property
    def paths(self) -> StorePaths:
        """The directories in which the store was looked for."""
        return self.given_paths or StorePaths.below(self.root)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was ever written to it."""
        return not (self.segments or self.dledger_segments or self.queues or self.checkpoint or self.config_files)

    @property
    def dledger_member(self) -> str | None:
        """The name of the DLedger directory that has data files; None unless exactly one has."""
        members = [name for name, files in self.dledger_segments.items() if files]
        return members[0] if len(members) == 1 else None

    @property
    def plain_segments(self) -> tuple[OffsetFile, ...]:
        """The segments without those of DLedger."""
        return tuple(segment for segment in self.segments if segment.log_format is LogFormat.ORDINARY)

    def segment_at(self, physical_offset: int) -> OffsetFile | None:
        """Return the segment that contains an offset, if it exists."""
        return next((one for one in self.segments if one.base <= physical_offset < one.base + one.size_bytes), None)


def find_store_files(root: Path, where: StorePaths | StoreSettings | None = None) -> StoreFiles:
    """List a store, or raise `StoreLayoutError` if `root` is not one.

    `where` has the paths of the CommitLog, or settings with them; None if it is below the root.
    """
    paths = StorePaths.of(root, where) if isinstance(where, StoreSettings) else where or StorePaths.below(root)
    if not root.exists():
        raise StoreLayoutError(f"{root} does not exist; give the broker's storePathRootDir")
    if not root.is_dir():
        raise StoreLayoutError(f"{root} is a file, not a store; give the directory that holds commitlog/")
    store = _Listing(root.resolve()).store(paths)
    if not _looks_like_store(store):
        raise StoreLayoutError(
            f"{root} is not a RocketMQ store: looked for {_LOOKED_FOR}, and found {_shown_entries(root)};"
            " give the broker's storePathRootDir (its default is ~/store)"
        )
    return store


@dataclass(frozen=True, slots=True)
class ListedSegments:
    """Segments by base, and other entries of their directories."""

    segments: tuple[OffsetFile, ...]
    foreign: tuple[ForeignEntry, ...]


def list_segments(paths: StorePaths) -> ListedSegments:
    """List the segments of all CommitLog directories by base; refuse one base in two of them.

    A configured directory may itself be a symbolic link; a link in it is followed only while it stays inside.
    """
    by_base: dict[int, OffsetFile] = {}
    foreign: list[ForeignEntry] = []
    for directory in paths.log_directories:
        if directory.is_symlink() and not paths.is_configured:
            reason = f"is a link to {directory.readlink()}, which is not followed; give that path instead"
            foreign.append(ForeignEntry(directory, reason))
            continue
        listing = _Listing(directory.resolve())
        for segment in listing.offset_files(directory, paths.format_of(directory)):
            other = by_base.setdefault(segment.base, segment)
            if other is not segment:
                raise StoreLayoutError(
                    f"{other.path} and {segment.path} are the same segment of one log; find out which one belongs to"
                    " it and move the other away"
                )
        foreign += listing.foreign
    return ListedSegments(tuple(by_base[base] for base in sorted(by_base)), tuple(foreign))


def _refuse_other_log(paths: StorePaths, below: Path | None) -> None:
    """Refuse segments in the default directory if the settings say that the log is elsewhere."""
    if below is None or any(path.resolve() == below.resolve() for path in paths.log_directories):
        return
    if find_segments(below):
        raise StoreLayoutError(
            f"{below} has segments, but storePathCommitLog names {paths.shown}; if {below} is the log of this store,"
            f" give storePathCommitLog={below}, or add it to the others; if not, move it away"
        )


def find_segments(directory: Path) -> tuple[OffsetFile, ...]:
    """List the files of a directory that are named after their first byte: segments, or the files of one queue."""
    return _Listing(directory.resolve()).offset_files(directory)


def is_database(directory: Path) -> bool:
    """Return whether a directory holds a RocksDB database."""
    return (directory / _ROCKSDB_MARK).is_file()


def find_queues(directory: Path) -> QueueTable:
    """List the queues of a directory that holds topics, such as consumequeue/."""
    return _Listing(directory.resolve()).queues(directory)


def find_topic_queues(directory: Path) -> QueueTable:
    """List the queues of one topic's directory."""
    return _Listing(directory.resolve()).topic_queues(directory)


def find_index_files(directory: Path) -> tuple[SizedFile, ...]:
    """List index files from the oldest to the newest."""
    return _Listing(directory.resolve()).index_files(directory)


def find_config_files(directory: Path) -> tuple[SizedFile, ...]:
    """List the files of a config directory, backups too."""
    return _Listing(directory.resolve()).plain_files(directory)


def _looks_like_store(store: StoreFiles) -> bool:
    return bool(
        store.segments
        or store.dledger_segments
        or store.queues
        or store.index_files
        or store.checkpoint
        or any(directory.is_dir() for directory in store.paths.log_directories)
        or any(file.path.name == "topics.json" for file in store.config_files)
    )


def _shown_entries(root: Path) -> str:
    names = sorted(path.name for path in root.iterdir())
    if not names:
        return "an empty directory"
    more = len(names) - _SHOWN_ENTRIES_MAX
    return ", ".join(names[:_SHOWN_ENTRIES_MAX]) + (f" and {more} more" if more > 0 else "")


class _Listing:
    """One pass over directories; what it does not know it notes in `foreign`."""

    def __init__(self, resolved_root: Path) -> None:
        self._resolved_root = resolved_root
        self.foreign: list[ForeignEntry] = []

    def store(self, paths: StorePaths) -> StoreFiles:
        root = paths.root
        directories, files = self._entries(root)
        unread = [*_take(directories, _UNREAD_ENTRIES), *_take(files, _UNREAD_ENTRIES)]
        dledger = [directories.pop(name) for name in sorted(directories) if name.startswith(tree.DLEDGER_PREFIX)]
        found = StoreFiles(
            root=root,
            given_paths=paths,
            segments=self._segments(paths, directories),
            dledger_segments=self._dledger_segments(paths, dledger),
            queues=self.queues(directories.pop(tree.CONSUMEQUEUE, None)),
            ext_queues=self.queues(directories.pop(tree.CONSUMEQUEUE_EXT, None)),
            batch_queues=self.queues(directories.pop(tree.BATCH_CONSUMEQUEUE, None)),
            index_files=self.index_files(directories.pop(tree.INDEX, None)),
            config_files=self.plain_files(directories.pop(tree.CONFIG, None)),
            timer_log=self.offset_files(directories.pop(tree.TIMER_LOG, None)),
            timer_wheel=files.pop(tree.TIMER_WHEEL, None),
            checkpoint=files.pop(tree.CHECKPOINT, None),
            abort=files.pop(tree.ABORT, None),
            lock=files.pop(tree.LOCK, None),
            unread=tuple(unread),
        )
        self.foreign += [ForeignEntry(path, _why_unknown(name, "file")) for name, path in sorted(directories.items())]
        self.foreign += [
            ForeignEntry(file.path, _why_unknown(name, "directory")) for name, file in sorted(files.items())
        ]
        return _with_dledger(replace(found, foreign=tuple(self.foreign)))

    def _segments(self, paths: StorePaths, directories: dict[str, Path]) -> tuple[OffsetFile, ...]:
        """List the log's segments by base; those that the operator's settings name may be outside the root."""
        below = directories.pop(tree.COMMITLOG, None)
        if not paths.is_configured:
            return self.offset_files(below)
        found = list_segments(paths)
        self.foreign += found.foreign
        _refuse_other_log(paths, below)
        return found.segments

    def _dledger_segments(self, paths: StorePaths, members: list[Path]) -> dict[str, tuple[OffsetFile, ...]]:
        """List the data files of each DLedger directory; those of the only member may be outside the root.

        Raise `StoreLayoutError` for entries without data files: a reader would leave out what they contain.
        """
        found = {path.name: self.offset_files(path / tree.DLEDGER_DATA, LogFormat.DLEDGER) for path in members}
        given, data = paths.dledger_given, [path / tree.DLEDGER_DATA for path in members if found[path.name]]
        if given is not None and given.resolve() not in [path.resolve() for path in data]:
            listing = _Listing(given.resolve())
            outside = listing.offset_files(given, LogFormat.DLEDGER)
            self.foreign += listing.foreign
            if outside and (data or len(members) != 1):
                shown = f"one in {', '.join(map(str, data or members))}" if members else "no dledger-* directory"
                raise StoreLayoutError(
                    f"{DLEDGER_PATH.key}={given} has data files of DLedger, but {paths.root} has {shown}; name the log"
                    " of this store, and move the other away"
                )
            if outside:
                found[members[0].name] = outside
        for path in members:
            if not found[path.name] and _has_index_units(path / tree.DLEDGER_INDEX):
                raise StoreLayoutError(
                    f"store not read: {path} has an index of DLedger entries and no data files; if they are in another"
                    f" directory, give --config broker.conf or --set {DLEDGER_PATH.key}=DIR"
                )
        return found

    def offset_files(
        self, directory: Path | None, log_format: LogFormat = LogFormat.ORDINARY
    ) -> tuple[OffsetFile, ...]:
        found = []
        for file in self.plain_files(directory):
            base = tree.parse_offset_file_name(file.path.name)
            if base is None:
                self._note(file.path, "is not named after a first byte in 20 digits")
            else:
                found.append(OffsetFile(file.path, base, file.size_bytes, log_format))
        return tuple(found)

    def index_files(self, directory: Path | None) -> tuple[SizedFile, ...]:
        found = []
        for file in self.plain_files(directory):
            if tree.parse_index_file_name(file.path.name) is None:
                self._note(file.path, "is not named after a time in 17 digits")
            else:
                found.append(file)
        return tuple(found)

    def plain_files(self, directory: Path | None) -> tuple[SizedFile, ...]:
        """List the regular files of a directory by name; other entries are foreign."""
        if directory is None or not directory.is_dir():
            return ()
        directories, files = self._entries(directory)
        for path in directories.values():
            if not is_database(path):
                self._note(path, "is a directory among files")
        return tuple(files.values())

    def queues(self, directory: Path | None) -> QueueTable:
        table: dict[tuple[str, int], tuple[OffsetFile, ...]] = {}
        if directory is not None and is_database(directory):
            return table  # its files are RocksDB's
        for topic_directory in self._only_directories(directory):
            table.update(self.topic_queues(topic_directory))
        return table

    def topic_queues(self, directory: Path) -> QueueTable:
        table: dict[int, tuple[OffsetFile, ...]] = {}
        for queue_directory in self._only_directories(directory):
            queue_id = tree.parse_queue_id(queue_directory.name)
            if queue_id is None:
                self._note(queue_directory, "is not named after a queue id")
            else:
                table[queue_id] = self.offset_files(queue_directory)
        return {(directory.name, queue_id): table[queue_id] for queue_id in sorted(table)}

    def _only_directories(self, directory: Path | None) -> list[Path]:
        if directory is None or not directory.is_dir():
            return []
        directories, files = self._entries(directory)
        for file in files.values():
            self._note(file.path, "is a file among directories")
        return list(directories.values())

    def _entries(self, directory: Path) -> tuple[dict[str, Path], dict[str, SizedFile]]:
        """Return directories and regular files by name; links that leave the root and devices are foreign."""
        directories: dict[str, Path] = {}
        files: dict[str, SizedFile] = {}
        with os.scandir(directory) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
        for entry in entries:
            path = directory / entry.name
            if entry.is_symlink() and not self._stays_inside(path):
                self._note(path, f"is a link to {path.readlink()}, which is not followed; give that path instead")
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # a live broker removed it between listing and looking
            if stat.S_ISDIR(status.st_mode):
                directories[path.name] = path
            elif stat.S_ISREG(status.st_mode):
                files[path.name] = SizedFile(path, status.st_size)
            else:
                self._note(path, "is neither a file nor a directory")
        return directories, files

    def _stays_inside(self, link: Path) -> bool:
        try:
            return link.resolve(strict=True).is_relative_to(self._resolved_root)
        except (OSError, RuntimeError):  # dangling, or a loop
            return False

    def _note(self, path: Path, reason: str) -> None:
        self.foreign.append(ForeignEntry(path, reason))


def _with_dledger(store: StoreFiles) -> StoreFiles:
    """Append the data files of DLedger to the segments, if one directory has any: they continue the log."""
    member = store.dledger_member
    if member is None:
        return store
    paths = replace(store.paths, dledger=store.dledger_segments[member][0].path.parent)
    return replace(store, given_paths=paths, segments=(*store.segments, *store.dledger_segments[member]))


def _has_index_units(directory: Path) -> bool:
    """Return whether an index file of DLedger has a unit; a new file consists of zeros."""
    for file in find_segments(directory) if directory.is_dir() else ():
        with file.path.open("rb") as opened:
            if any(opened.read(INDEX_UNIT_BYTES)):
                return True
    return False


def _why_unknown(name: str, kind_of_name: str) -> str:
    """Return why an entry of a store's root does not belong to it; `kind_of_name` is what a known one would be."""
    return f"is no {kind_of_name}, as a store has it" if name in ROOT_ENTRIES else "is not a part of a store"


def _take(entries: dict[str, Path] | dict[str, SizedFile], names: frozenset[str]) -> list[Path]:
    taken = [entries.pop(name) for name in sorted(names & entries.keys())]
    return [entry.path if isinstance(entry, SizedFile) else entry for entry in taken]
