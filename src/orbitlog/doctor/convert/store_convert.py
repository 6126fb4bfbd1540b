"""Store conversion: writes an ordinary store from one in DLedger mode or with RocksDB tables, which is only read.

Everything is made in `<out>.converting` and renamed to `out` when it is complete and durable, so an interrupted
conversion is never taken for a store. The same command of the same user continues it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orbitlog.doctor.convert.conversion_origin import begin_or_continue, forget_origin
from orbitlog.doctor.convert.derived_conversion import (
    convert_timers,
    drop_deleted_queues,
    keep_delivery_times,
    keep_expired_queues,
)
from orbitlog.doctor.convert.log_conversion import LogConversion
from orbitlog.doctor.convert.table_conversion import convert_tables
from orbitlog.doctor.repair.derived_swap import make_derived
from orbitlog.errors import DiskFull, StoreLayoutError, StoreLocked
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.jobs.local_runner import PhaseProgress, Runner, phase_of, run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.staging import TEMPORARY, sync_tree, whole_file
from orbitlog.jobs.store_use import SHARED_USE
from orbitlog.settings import store_settings as keys
from orbitlog.settings.store_settings import StoreGeometry, StoreSettings
from orbitlog.storefiles.config_reading import unread_tables
from orbitlog.storefiles.confined.store_links import refuse_links
from orbitlog.storefiles.disk import Disk, RealDisk
from orbitlog.storefiles.inferred_geometry import robust_geometry
from orbitlog.storefiles.inferred_rules import sampled_rules
from orbitlog.storefiles.mapped_view import mapped_view, written_until
from orbitlog.storefiles.replicated_log import ReplicatedLog
from orbitlog.storefiles.rocksdb.databases import refuse_without_binding
from orbitlog.storefiles.rocksdb.queue_export import with_queue_files
from orbitlog.storefiles.rocksdb.rocksdb_tables import rocksdb_directories
from orbitlog.storefiles.store_contents import Content, find_obstacles
from orbitlog.storefiles.store_files import StoreFiles, find_queues, find_store_files
from orbitlog.storefiles.store_paths import StorePaths

_SUFFIX = ".converting"
_STATE = "orbitlog.convert"
_COPY_BYTES = 8 * 1024 * 1024
# Derived data that a rebuild makes from the log, and tables that are read through the binding.
_CONVERTIBLE = frozenset((Content.DLEDGER_LOG, Content.ROCKSDB_QUEUES, Content.ROCKSDB_TABLES))


@dataclass(frozen=True, slots=True)
class Conversion:
    """Result of a conversion or of its dry run."""

    store: str
    out: str
    kinds: tuple[str, ...]
    records: int = 0
    log_start: int = 0
    log_end: int = 0
    uncommitted: int = 0
    torn_at: int | None = None
    queues: int = 0
    expired_queues: int = 0
    keys: int = 0
    timer_units: int = 0
    tables: tuple[str, ...] = ()
    is_dry_run: bool = False
    notes: tuple[str, ...] = field(default_factory=tuple)

    def as_object(self) -> dict[str, Any]:
        """Return the JSON object that the command prints."""
        return {
            "store": self.store,
            "out": self.out,
            "kinds": list(self.kinds),
            "dryRun": self.is_dry_run,
            "messages": self.records,
            "logStart": self.log_start,
            "logEnd": self.log_end,
            "uncommitted": self.uncommitted,
            "tornAt": self.torn_at,
            "queues": self.queues,
            "expiredQueues": self.expired_queues,
            "keys": self.keys,
            "timerUnits": self.timer_units,
            "tables": list(self.tables),
            "notes": list(self.notes),
        }


def convert_store(
    root: Path,
    out: Path,
    settings: StoreSettings,
    *,
    accept_uncommitted: bool = False,
    dry_run: bool = False,
    run: Runner = run_here,
    progress: PhaseProgress | None = None,
    disk: Disk | None = None,
) -> Conversion:
    """Write an ordinary store into `out`, which must not exist; raise `StoreLayoutError` if it cannot be converted."""
    store = find_store_files(root, settings)
    refuse_links(store.paths)
    kinds, left_out = _kinds(store, settings)
    _check_places(store, out)
    for directory in unread_tables(root):
        refuse_without_binding(directory)
    if SHARED_USE.is_in_use(store):
        raise StoreLocked(f"{root} is used by a broker; stop it first")
    work = out.with_name(out.name + _SUFFIX)
    geometry, rules = robust_geometry(store, settings), sampled_rules(store, settings)
    result = Conversion(str(root), str(out), kinds, is_dry_run=dry_run)
    if dry_run:
        found = _surveyed(store, result, accept_uncommitted=accept_uncommitted, progress=progress)
        return replace(found, notes=(*found.notes, *left_out))
    _check_room(store, out)
    disk = disk or RealDisk()
    state = work / _STATE
    begin_or_continue(disk, store, work)
    disk.make_directory(state)
    if store.dledger_segments:
        result = _convert_log(
            disk,
            store,
            work,
            result,
            segment_bytes=geometry.segment_bytes,
            accept_uncommitted=accept_uncommitted,
            progress=progress,
        )
    else:
        result = _copy_log(disk, store, work, result, progress)
    result = replace(result, tables=tuple(convert_tables(disk, store, work, state, rules.compat)))
    result = _derive(disk, store, work, result, _explicit(settings, geometry, rules), run=run, progress=progress)
    _publish(disk, work, out, state)
    return replace(result, notes=(*result.notes, *left_out))


def _kinds(store: StoreFiles, settings: StoreSettings) -> tuple[tuple[str, ...], list[str]]:
    """Return what makes the store special, and notes on directories that are left out.

    Raise `StoreLayoutError` if the store is ordinary, or if it has something else that is special.
    """
    directories = StorePaths.of(store.root, settings).log_directories
    obstacles = list(find_obstacles(store.root, log_directories=directories))
    for obstacle in obstacles:
        is_left_out = obstacle.content is Content.UNKNOWN_DIRECTORY and not obstacle.parts
        if obstacle.content not in _CONVERTIBLE and not is_left_out:
            raise StoreLayoutError(f"store not converted: {obstacle}")
    kinds = sorted({obstacle.content.value for obstacle in obstacles if obstacle.content in _CONVERTIBLE})
    left_out = [obstacle.path for obstacle in obstacles if obstacle.content not in _CONVERTIBLE]
    if not kinds:
        raise StoreLayoutError(f"{store.root} is an ordinary store already; copy it instead")
    if not store.dledger_segments and not store.segments:
        raise StoreLayoutError(f"{store.root} has no log to convert")
    return tuple(kinds), [f"{path} is not a directory of a RocketMQ store and is left out" for path in left_out]


def _check_places(store: StoreFiles, out: Path) -> None:
    if os.path.lexists(out):
        raise StoreLayoutError(f"{out} exists already; give a directory that does not exist")
    if not out.parent.is_dir():
        raise StoreLayoutError(f"{out.parent} does not exist; create it first")
    if out.resolve().is_relative_to(store.root.resolve()):
        raise StoreLayoutError(f"{out} is inside the store that it would be made from; give another directory")


def _surveyed(
    store: StoreFiles, result: Conversion, *, accept_uncommitted: bool, progress: PhaseProgress | None
) -> Conversion:
    """Return what a conversion would do, from reading the whole log."""
    tables = [file.path.name for file in store.config_files]
    tables += [path.name for path in rocksdb_directories(store.root / tree.CONFIG)]
    result = replace(result, tables=tuple(sorted(tables)))
    if not store.dledger_segments:
        last = store.segments[-1]
        return replace(result, log_start=store.segments[0].base, log_end=last.base + last.size_bytes)
    with ReplicatedLog.of(store, accepts_uncommitted=accept_uncommitted) as log:
        phase = phase_of(progress, "reading", log.size_bytes)
        count, end = 0, log.start
        for record in log.records():
            count, end = count + 1, record.end
            if phase is not None and count % 1000 == 0:
                phase(end - log.start, count)
        return replace(
            result,
            records=count,
            log_start=log.start,
            log_end=end,
            uncommitted=log.uncommitted_count,
            torn_at=log.torn_at,
            notes=_notes(log),
        )


def _notes(log: ReplicatedLog) -> tuple[str, ...]:
    notes = []
    if log.uncommitted_count:
        notes.append(
            f"{log.uncommitted_count} entries after the committed entry {log.checkpoint.committed_index} are left out;"
            " convert the member with the highest committed index, or give --accept-uncommitted"
        )
    if log.checkpoint.committed_index is None:
        notes.append(f"{log.member}/checkpoint states no committed index: every entry is converted")
    if log.torn_at is not None:
        notes.append(f"the last entry, at physical offset {log.torn_at}, is incomplete and left out")
    return tuple(notes)


def _convert_log(
    disk: Disk,
    store: StoreFiles,
    work: Path,
    result: Conversion,
    *,
    segment_bytes: int,
    accept_uncommitted: bool,
    progress: PhaseProgress | None,
) -> Conversion:
    with ReplicatedLog.of(store, accepts_uncommitted=accept_uncommitted) as log:
        conversion = LogConversion(disk, log, work / tree.COMMITLOG, work / _STATE, segment_bytes)
        done = conversion.run(phase_of(progress, "converting", log.size_bytes))
        units = convert_timers(disk, store, work, work / _STATE, conversion.translate)
        return replace(
            result,
            records=done.record_count,
            log_start=log.start,
            log_end=done.next_new,
            uncommitted=log.uncommitted_count,
            torn_at=log.torn_at,
            timer_units=units,
            notes=_notes(log),
        )


def _copy_log(
    disk: Disk, store: StoreFiles, work: Path, result: Conversion, progress: PhaseProgress | None
) -> Conversion:
    """Copy the segments of an ordinary log; one that an earlier run copied completely is kept."""
    target, temporary = work / tree.COMMITLOG, work / _STATE / TEMPORARY
    phase = phase_of(progress, "copying", sum(segment.size_bytes for segment in store.segments))
    copied = 0
    for segment in store.segments:
        path = target / segment.path.name
        if not path.exists():
            modified_ms = int(segment.path.stat().st_mtime * 1000)
            with whole_file(disk, path, temporary, modified_ms=modified_ms) as file, mapped_view(segment.path) as view:
                for start in range(0, min(written_until(segment.path), len(view)), _COPY_BYTES):
                    file.write(start, view[start : start + _COPY_BYTES])
                file.resize(segment.size_bytes)
        copied += segment.size_bytes
        if phase is not None:
            phase(copied, 0)
    units = convert_timers(disk, store, work, work / _STATE, lambda offset: offset)
    return replace(result, log_start=store.segments[0].base, timer_units=units)


def _explicit(settings: StoreSettings, geometry: StoreGeometry, rules: DeriveRules) -> StoreSettings:
    """Return the settings with what was inferred from the source, as the new store has no derived file yet."""
    inferred = {
        keys.SEGMENT_BYTES.key: str(geometry.segment_bytes),
        keys.QUEUE_FILE_BYTES.key: str(geometry.queue_file_bytes),
        keys.SLOT_COUNT.key: str(geometry.index_layout.slot_count),
        keys.ENTRY_COUNT.key: str(geometry.index_layout.entry_count),
        keys.COMPAT.key: rules.compat.name,
    }
    others = {key: text for key, text in settings.texts.items() if key not in keys.LOG_PATH_SETTINGS}
    return StoreSettings({**inferred, **others})


def _derive(
    disk: Disk,
    store: StoreFiles,
    work: Path,
    result: Conversion,
    settings: StoreSettings,
    *,
    run: Runner,
    progress: PhaseProgress | None,
) -> Conversion:
    """Derive queues, index and checkpoint from the new log, and keep the offsets of queues without messages."""
    derived = work / _STATE / "derived"
    disk.remove_tree(derived)
    made = make_derived(run, work, derived, settings, split_bytes=SPLIT_BYTES_DEFAULT, progress=progress, disk=disk)
    if not made.is_published:
        raise StoreLayoutError(f"the converted log cannot be indexed: {made.findings[0]}")
    for part in (tree.CONSUMEQUEUE, tree.INDEX, tree.CHECKPOINT):
        disk.remove_tree(work / part) if (work / part).is_dir() else disk.remove_file(work / part)
        if (derived / part).exists():
            disk.move(derived / part, work / part)
    with with_queue_files(store, settings.value(keys.QUEUE_FILE_BYTES)) as (readable, _):
        keep_delivery_times(disk, readable, work, work / _STATE)
    deleted = drop_deleted_queues(disk, store, work, find_queues(work / tree.CONSUMEQUEUE).keys())
    queues = find_queues(work / tree.CONSUMEQUEUE)
    expired = keep_expired_queues(
        disk,
        store,
        work,
        work / _STATE,
        derived=queues.keys(),
        log_start=result.log_start,
        queue_file_bytes=settings.value(keys.QUEUE_FILE_BYTES),
    )
    return replace(
        result,
        records=made.messages,
        log_end=made.log_end or result.log_end,
        queues=len(queues),
        expired_queues=expired,
        keys=made.keys,
        notes=(*result.notes, *_deleted_note(deleted)),
    )


def _deleted_note(topics: list[str]) -> list[str]:
    if not topics:
        return []
    return [f"messages of deleted topics are in the log and in no queue: {', '.join(topics[:5])}"]


def _publish(disk: Disk, work: Path, out: Path, state: Path) -> None:
    """Make everything durable, then give the store its name."""
    disk.remove_tree(state)
    disk.replace_file(work / tree.LOCK, tree.LOCK_CONTENT)
    sync_tree(disk, work)
    disk.move(work, out)
    disk.sync_directory(out.parent)
    forget_origin(disk, work)


def _check_room(store: StoreFiles, out: Path) -> None:
    """Raise `DiskFull` if the log and derived files of a tenth of its size do not fit."""
    written = sum(written_until(file.path) for file in store.segments)
    needed, free = written + written // 10, shutil.disk_usage(out.parent).free
    if needed > free:
        raise DiskFull(f"{out.parent} has {free} bytes free, a conversion needs about {needed}")
