"""Store paths: the root of a store and the directories that its CommitLog is spread over.

Mirrors `MessageStoreConfig.getStorePathCommitLog` and `MultiPathMappedFileQueue`. Only the CommitLog can be outside
the root: queues, index, checkpoint, abort, lock and config are always below `storePathRootDir`, as they are for
Apache's brokers of 4.9 and 5.x.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.settings.setting import Setting, SettingError
from orbitlog.settings.store_settings import (
    ABORT_PATH,
    CHECKPOINT_PATH,
    COMMITLOG_PATHS,
    DLEDGER_PATH,
    INDEX_PATH,
    QUEUE_PATH,
    READ_ONLY_PATHS,
    StoreSettings,
)

if TYPE_CHECKING:
    from orbitlog.formats.records.log_format import LogFormat


@dataclass(frozen=True, slots=True)
class StorePaths:
    """Directories of one store; frozen, and light enough to travel to workers.

    `commitlog` is in the order in which Apache's broker sorts the directories: a new segment is placed by its number
    modulo those that can take one. `read_only` are directories whose segments are part of the log, but that never get
    a new one; a directory can be in both.
    """

    root: Path
    commitlog: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()
    is_configured: bool = False
    """Whether `storePathCommitLog` was given; if not, `commitlog` is the default directory below the root."""
    dledger: Path | None = None
    """The directory of data files in the DLedger format, which continue the log; readers set it, no broker does."""
    dledger_given: Path | None = None
    """The directory in which `storePathDLedgerCommitLog` places such files; None for the one below the root."""

    @classmethod
    def below(cls, root: Path) -> StorePaths:
        """Return the paths of a store that has everything below its root, as by default."""
        return cls(root, (root / tree.COMMITLOG,))

    @classmethod
    def of(cls, root: Path, settings: StoreSettings) -> StorePaths:
        """Return the paths that the settings name; raise `SettingError` if they contradict each other.

        No file is looked at except to find two names of one directory.
        """
        for ignored in _IGNORED:
            ignored.refuse_files(root, settings)
        texts, read_only_texts = settings.value(COMMITLOG_PATHS), settings.value(READ_ONLY_PATHS)
        dledger_text = settings.value(DLEDGER_PATH)
        dledger_given = Path(dledger_text).absolute() if dledger_text else None
        if not texts:
            _refuse_ignored(read_only_texts, (root / tree.COMMITLOG,))
            return cls(root, (root / tree.COMMITLOG,), dledger_given=dledger_given)
        commitlog = tuple(Path(text).absolute() for text in sorted(texts, key=_java_order))
        if not settings.has_several_log_paths:
            _refuse_ignored(read_only_texts, commitlog)
            read_only_texts = ()
        read_only = tuple(Path(text).absolute() for text in sorted(read_only_texts, key=_java_order))
        _refuse_two_names([*texts, *(text for text in read_only_texts if text not in texts)])
        paths = cls(root, commitlog, read_only, is_configured=True, dledger_given=dledger_given)
        if not paths.writable:
            raise SettingError(
                f"every directory of {COMMITLOG_PATHS.key} is also in {READ_ONLY_PATHS.key}, so no segment can be"
                f" created; add a directory to {COMMITLOG_PATHS.key} that is not read-only"
            )
        return paths

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """Every directory that has segments of the log, without duplicates."""
        dledger = () if self.dledger is None else (self.dledger,)
        return tuple(dict.fromkeys((*self.commitlog, *self.read_only, *dledger)))

    def format_of(self, directory: Path) -> LogFormat:
        """Return how records are stored in the files of a directory of the log."""
        from orbitlog.formats.records.log_format import LogFormat

        return LogFormat.DLEDGER if directory == self.dledger else LogFormat.ORDINARY

    @property
    def writable(self) -> tuple[Path, ...]:
        """Directories that can get a new segment, sorted as Apache's broker sorts them."""
        return tuple(path for path in self.commitlog if path not in self.read_only)

    @property
    def has_several(self) -> bool:
        return len(self.log_directories) > 1

    @property
    def shown(self) -> str:
        """The log's directories in a sentence."""
        return ", ".join(map(str, self.log_directories))

    def as_settings(self) -> dict[str, str]:
        """Return the settings from which a reader makes the same paths; the order of the directories is not kept."""
        texts = {} if self.dledger_given is None else {DLEDGER_PATH.key: str(self.dledger_given)}
        if not self.is_configured:
            return texts
        # The comma at the end has the read-only directories read, however many others there are.
        texts[COMMITLOG_PATHS.key] = "".join(f"{path.absolute()}," for path in self.commitlog)
        if self.read_only:
            texts[READ_ONLY_PATHS.key] = ",".join(str(path.absolute()) for path in self.read_only)
        return texts

    def directory_of(self, segment_number: int, full: Iterable[Path] = ()) -> Path:
        """Return where a new segment is created; `full` directories are left out unless all are full."""
        unavailable = set(full)
        writable = self.writable
        available = [path for path in writable if path not in unavailable] or writable
        return available[segment_number % len(available)]

    def find_segment(self, base: int, segment_bytes: int = 0) -> Path:
        """Return the path of the segment that starts at `base`; if it does not exist, the path for creating it."""
        name = tree.offset_file_name(base)
        if self.has_several:
            for directory in self.log_directories:
                if (directory / name).exists():
                    return directory / name
        return self.directory_of(base // segment_bytes if segment_bytes else 0) / name


@dataclass(frozen=True, slots=True)
class _IgnoredPath:
    """A key of many published broker.conf that Apache's brokers of 4.9 and 5.x do not read."""

    setting: Setting[str]
    name: str

    def elsewhere(self, root: Path, settings: StoreSettings) -> Path | None:
        """Return the path that the key names, None if it is left out or names what is used anyway."""
        text = settings.value(self.setting)
        if not text or Path(text).resolve() == (root / self.name).resolve():
            return None
        return Path(text).absolute()

    def refuse_files(self, root: Path, settings: StoreSettings) -> None:
        """Refuse a directory with files of its kind if the one that is used has none."""
        path = self.elsewhere(root, settings)
        if path is None or not _has_entries(path) or self.setting not in (QUEUE_PATH, INDEX_PATH):
            return
        if not _has_entries(root / self.name):
            raise StoreLayoutError(
                f"{self.setting.key}={path} has files and {root / self.name} has none, but Apache's brokers of 4.9 and"
                f" 5.x do not read this setting; move the files to {root / self.name}, or remove the setting"
            )


_IGNORED = (
    _IgnoredPath(QUEUE_PATH, tree.CONSUMEQUEUE),
    _IgnoredPath(INDEX_PATH, tree.INDEX),
    _IgnoredPath(CHECKPOINT_PATH, tree.CHECKPOINT),
    _IgnoredPath(ABORT_PATH, tree.ABORT),
)


class IgnoredSetting(NamedTuple):
    """A setting with a path which no broker uses, and a sentence that names the path used instead."""

    key: str
    sentence: str


def ignored_paths(root: Path, settings: StoreSettings) -> list[IgnoredSetting]:
    """Return each setting that names a path which no broker uses."""
    named = [(one, one.elsewhere(root, settings)) for one in _IGNORED]
    reason = "is not read by Apache's brokers of 4.9 and 5.x, nor here"
    return [
        IgnoredSetting(one.setting.key, f"{one.setting.key}={path} {reason}: {root / one.name} is used")
        for one, path in named
        if path is not None
    ]


def _has_entries(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


def refuse_shared_log(roots: Sequence[Path], settings: StoreSettings) -> None:
    """Refuse settings that would give several stores one log."""
    if len(roots) > 1 and StorePaths.of(roots[0], settings).is_configured:
        raise SettingError(
            f"{COMMITLOG_PATHS.key} is given for {len(roots)} stores, which cannot share a log; give them one by one"
        )


def where_else(paths: StorePaths) -> str:
    """Return what to do if the log is missing from its directories."""
    if paths.is_configured:
        return (
            f"mount the disks of {paths.shown}, or correct {COMMITLOG_PATHS.key} and {READ_ONLY_PATHS.key}: the queues"
            " refer to messages that must be in one of these directories"
        )
    return f"if the CommitLog is in another directory, give --config broker.conf or --set {COMMITLOG_PATHS.key}=DIR"


def _java_order(text: str) -> bytes:
    """Sort as `String.compareTo` does: by UTF-16 code units of the text as it was written."""
    return text.encode("utf-16-be", "surrogatepass")


def _refuse_two_names(texts: Iterable[str]) -> None:
    """Refuse one directory under two names: its segments would be in the log twice."""
    seen: dict[Path, str] = {}
    for text in texts:
        other = seen.setdefault(Path(text).resolve(), text)
        if other != text:
            raise SettingError(
                f"{COMMITLOG_PATHS.key} and {READ_ONLY_PATHS.key}: {other} and {text} are the same directory; write it"
                " the same way wherever it is named"
            )


def _refuse_ignored(read_only_texts: Iterable[str], commitlog: tuple[Path, ...]) -> None:
    """Refuse read-only directories with segments if Apache's broker would leave them out of the log."""
    for text in read_only_texts:
        directory = Path(text).absolute()
        if directory in commitlog or not directory.is_dir():
            continue
        if any(tree.parse_offset_file_name(entry.name) is not None for entry in directory.iterdir()):
            raise StoreLayoutError(
                f"{READ_ONLY_PATHS.key}={text} has segments, but Apache's broker reads this setting only if"
                f" {COMMITLOG_PATHS.key} has a comma; write {COMMITLOG_PATHS.key}={commitlog[0]}, (with the comma at"
                f" the end), or remove {READ_ONLY_PATHS.key}"
            )
