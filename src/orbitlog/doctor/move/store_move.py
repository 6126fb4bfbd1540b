"""Move report: what would be refused, lost or changed if a store changed hands between Apache's broker and Orbitlog.

Reads only. For a move to Orbitlog the checks of the opening itself are tried (`opening_trial`), so the report and the
start of the broker cannot disagree. Settings of the broker are reviewed by the caller, and so is the choice between the
two offset tables; here only those settings count that concern the files of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orbitlog.broker.tables.config_directory import BROKER_TABLES
from orbitlog.broker.tables.missing_tables import refuse_missing_tables
from orbitlog.doctor.examination import examine
from orbitlog.doctor.explanation import explain
from orbitlog.doctor.finding_kinds import Severity
from orbitlog.doctor.move.move_rows import MoveRow, MoveSeverity, changes, note, refused
from orbitlog.doctor.move.move_state import pending_rows, table_rows
from orbitlog.doctor.move.move_to_java import LMQ_SETTING, java_offset_rows, java_rows
from orbitlog.doctor.surveys.pending_messages import find_pending
from orbitlog.doctor.surveys.stored_tables import load_table
from orbitlog.errors import FormatError, OrbitlogError, StoreLayoutError, StoreLocked
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.dispatch_marks import LEASE_LOCK_FILE
from orbitlog.formats.derived.store_state import STATE_FILE
from orbitlog.jobs.local_runner import PhaseProgress
from orbitlog.settings.store_settings import StoreSettings
from orbitlog.store.recovery.opening_trial import try_opening
from orbitlog.store.store_notices import NoticeSubject, StoreNotice
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.findings import FindingKind
from orbitlog.storefiles.found_config import find_config
from orbitlog.storefiles.read_only_disk import ReadOnlyDisk
from orbitlog.storefiles.store_contents import ALL_PARTS, Obstacle, find_obstacles
from orbitlog.storefiles.store_files import StoreFiles, find_store_files
from orbitlog.storefiles.store_paths import StorePaths, ignored_paths

ORBITLOG, JAVA = "orbitlog", "java"
_ACCESS_CONTROL = ("users", "acls")


@dataclass(frozen=True, slots=True)
class MoveWish:
    """A move that is asked about.

    `texts` are all settings as they were given. `java_version` is `4.9` or `5.5`, None for the line that wrote the
    store. With `is_quick` the log is not read.
    """

    target: str
    texts: Mapping[str, str] = field(default_factory=dict)
    java_version: str | None = None
    is_quick: bool = False

    def is_set(self, key: str) -> bool:
        """Return whether a boolean setting is true, read as Java does."""
        return self.texts.get(key, "").lower() == "true"


def survey_move(
    root: Path, wish: MoveWish, settings: StoreSettings, *, progress: PhaseProgress | None = None
) -> list[MoveRow]:
    """Return what stands against the move, most severe first, and what continues."""
    return sort_rows(_rows(root, wish, settings, progress))


def sort_rows(rows: Iterable[MoveRow]) -> list[MoveRow]:
    """Return rows without duplicates, refusals first."""
    order = list(MoveSeverity)
    return sorted(dict.fromkeys(rows), key=lambda row: order.index(row.severity))


def _rows(root: Path, wish: MoveWish, settings: StoreSettings, progress: PhaseProgress | None) -> Iterator[MoveRow]:
    obstacles = list(find_obstacles(root, log_directories=_log_directories(root, settings)))
    has_tables = _can_open_tables(root)
    in_use = RealDisk().lock_holder(root / tree.LOCK) if (root / tree.LOCK).is_file() else None
    if in_use is not None:
        yield refused(
            "in use",
            f"{root} is in use by process {in_use}",
            path=root / tree.LOCK,
            next_step="stop that broker and wait until its process has ended",
        )
    yield from _lease_rows(root, wish)
    if wish.target == ORBITLOG:
        yield from map(_obstacle_row, obstacles)
        if has_tables:
            yield from _table_refusals(root)
        if in_use is None:
            yield from _opening_rows(root, settings, wish, bool(obstacles), progress)
    try:
        store = find_store_files(root, settings)
    except OrbitlogError as error:
        if wish.target == JAVA:
            yield refused("store", str(error), path=root)
        return
    if has_tables:
        yield from _common_rows(store, wish, settings)
    if wish.target == JAVA:
        if has_tables:
            yield from java_rows(store, settings, wish.texts, wish.java_version)
        for obstacle in obstacles:
            yield note(
                "not judged", f"{obstacle.path} {obstacle.what}; only Apache's broker can say", path=obstacle.path
            )
    is_readable = not any(obstacle.parts & ALL_PARTS for obstacle in obstacles)
    if is_readable and in_use is None:
        yield from _state_rows(root, store, wish, settings)
        yield from _examination_rows(root, wish, settings, progress)


def _obstacle_row(obstacle: Obstacle) -> MoveRow:
    sentence = f"{obstacle.path} {obstacle.what}"
    return refused(obstacle.content.value, sentence, path=obstacle.path, next_step=obstacle.advice)


def _log_directories(root: Path, settings: StoreSettings) -> tuple[Path, ...] | None:
    """Return the directories of the log; None, for the default one, if the settings contradict each other."""
    try:
        return StorePaths.of(root, settings).log_directories
    except OrbitlogError:
        return None


def _lease_rows(root: Path, wish: MoveWish) -> Iterator[MoveRow]:
    path = root / LEASE_LOCK_FILE
    holder = RealDisk().lock_holder(path) if path.is_file() else None
    if holder is None:
        return
    if wish.target == ORBITLOG:
        yield note("dispatch lease", f"process {holder} dispatches this store; the broker takes the lease", path=path)
    else:
        yield changes(
            "dispatch lease",
            f"process {holder} dispatches this store and would write to its queues beside Java's broker",
            path=path,
            next_step="stop `orbitlog pipeline dispatch` first",
        )


def _can_open_tables(root: Path) -> bool:
    """Return False for tables in a RocksDB database that is damaged, or that needs a binding which is missing."""
    try:
        load_table(root, BROKER_TABLES[0])
    except StoreLayoutError:
        return False
    except FormatError:
        pass  # reported with the file
    return True


def _table_refusals(root: Path) -> Iterator[MoveRow]:
    for file in BROKER_TABLES:
        try:
            load_table(root, file)
        except FormatError as error:
            path = root / tree.CONFIG / file.name
            advice = "repair it, or replace its content by {} to start without it"
            yield refused("table", f"{path} cannot be read: {error}", path=path, next_step=advice)


def _opening_rows(
    root: Path, settings: StoreSettings, wish: MoveWish, has_obstacles: bool, progress: PhaseProgress | None
) -> Iterator[MoveRow]:
    """Try what the broker's start does with the store."""
    try:
        config = find_config(root, settings, ReadOnlyDisk())
        if has_obstacles:
            return
        followed = None if progress is None else lambda done, total: progress("recovery", done, total, 0)
        missing = refuse_missing_tables(config.paths_of(root), ReadOnlyDisk()) if wish.target == ORBITLOG else []
        notices = try_opening(root, config, read_log=not wish.is_quick, progress=followed)
    except StoreLocked as error:
        yield refused("in use", str(error), path=root / tree.LOCK)
    except OrbitlogError as error:
        yield refused("store", str(error), path=root)
    else:
        yield from (note("recovery", sentence, path=root) for sentence in missing)
        yield from (_notice_row(root, notice) for notice in notices)


def _notice_row(root: Path, notice: StoreNotice) -> MoveRow:
    """Return the row for a notice that the start logs."""
    kind = notice.subject.value
    match notice.subject:
        case NoticeSubject.EXTENSION_QUEUES:
            return changes(kind, notice.sentence, path=root / tree.CONSUMEQUEUE_EXT)
        case NoticeSubject.PROPERTY_CRC:
            return changes(kind, notice.sentence, setting=notice.setting)
        case NoticeSubject.RECOVERY:
            return note(kind, notice.sentence, path=root)


def _common_rows(store: StoreFiles, wish: MoveWish, settings: StoreSettings) -> Iterator[MoveRow]:
    root = store.root
    for ignored in ignored_paths(root, settings):
        yield note("path setting", ignored.sentence, setting=ignored.key)
    if store.abort is not None:
        was_orbitlog = (root / STATE_FILE).is_file()
        if wish.target == JAVA and was_orbitlog:
            yield changes(
                "unclean stop",
                "abort exists: Orbitlog was not stopped cleanly, so timer and POP messages are not handed over and"
                " Java's broker may deliver some of them twice or late",
                path=store.abort.path,
                next_step="start Orbitlog on the store once, stop it with TERM, and repeat this command",
            )
        else:
            yield note(
                "unclean stop",
                "abort exists: the broker was not stopped cleanly, and the next one recovers the store at its start",
                path=store.abort.path,
            )
    for name in _ACCESS_CONTROL:
        if wish.target == ORBITLOG and any((root / tree.CONFIG / name).glob("*")):
            yield note(
                "access control",
                "users and policies of Apache's broker are kept here in RocksDB; Orbitlog reads those of accessFile",
                path=root / tree.CONFIG / name,
                next_step="create them with `orbitlog access user add` if authenticationEnabled=true",
            )
    yield from table_rows(store)
    if wish.target == JAVA:
        yield from java_offset_rows(store, wish.is_set(LMQ_SETTING))


def _state_rows(root: Path, store: StoreFiles, wish: MoveWish, settings: StoreSettings) -> Iterator[MoveRow]:
    if not store.segments:
        return
    found, pending = explain(root, settings), find_pending(store)
    is_without_timers = wish.target == JAVA and (wish.java_version or found.compat) == "4.9"
    yield from pending_rows(found, pending, has_timers_and_pop=not is_without_timers)


def _examination_rows(
    root: Path, wish: MoveWish, settings: StoreSettings, progress: PhaseProgress | None
) -> Iterator[MoveRow]:
    if wish.is_quick:
        yield note("log not read", "the log was not read (--quick): damage and a log that ends early are not found")
        return
    try:
        found = examine(root, settings=settings, progress=progress)
    except OrbitlogError as error:
        yield changes("doctor check", f"the store could not be examined: {error}", path=root)
        return
    problems = [one for one in found.diagnoses if one.severity is not Severity.NOTE]
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        yield changes(
            "doctor check",
            f"{count}, see `orbitlog doctor check {root}`; the first: {problems[0].finding}",
            path=root,
            next_step=f"run `orbitlog doctor repair {root}` before the move",
        )
    for one in found.diagnoses:
        if one.finding.kind == FindingKind.TOPIC_LIFE:
            yield note("topic life", one.finding.reason, path=one.finding.path)
