"""Targets of dump commands: resolves a PATH to a whole store, one of its directories, or one file.

A path of the wrong kind is a usage error (exit 2) that names the right command or path. File sizes that cannot be
inferred from one file are inferred from the other files in its directory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import click

from orbitlog.cli.dump.file_kind import DESCRIPTIONS, first_byte_number, other_kind
from orbitlog.cli.main import WrongUse
from orbitlog.cli.store_options import warn
from orbitlog.errors import StoreLayoutError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.formats.derived.timer_checkpoint import TIMER_CHECKPOINT_FILE
from orbitlog.formats.records.dledger import DLedgerEntry, read_entry_at
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.tables.config_files import CONFIG_CODECS
from orbitlog.settings.store_settings import QUEUE_FILE_BYTES, StoreSettings
from orbitlog.storefiles import store_files as files
from orbitlog.storefiles.config_reading import stored_table
from orbitlog.storefiles.log_presence import check_log_is_there
from orbitlog.storefiles.mapped_view import holds_data, mapped_view
from orbitlog.storefiles.rocksdb.databases import refuse_without_binding
from orbitlog.storefiles.rocksdb.queue_export import with_queue_files
from orbitlog.storefiles.rocksdb.rocksdb_tables import ROCKSDB_FILES
from orbitlog.storefiles.store_contents import IN_ROCKSDB, NO_PART, READABLE, Content, Part, find_obstacles
from orbitlog.storefiles.store_files import OffsetFile, SizedFile, StoreFiles
from orbitlog.storefiles.store_inference import infer_index_layout, infer_queue_file_bytes, infer_segment_bytes
from orbitlog.storefiles.store_log import UncommittedTail, committed_end, uncommitted_tail


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Segments to read, their nominal size, and the committed end if they are a store's DLedger log."""

    segments: tuple[OffsetFile, ...]
    segment_bytes: int
    committed_end: int | None = None
    tail: UncommittedTail | None = None

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


@dataclass(frozen=True, slots=True)
class QueueSource:
    """One queue, or one file of it; topic and queue of a file outside of a store are unknown."""

    topic: str | None
    queue_id: int | None
    files: tuple[OffsetFile, ...]


@dataclass(frozen=True, slots=True)
class QueueTarget:
    queues: tuple[QueueSource, ...]
    file_bytes: int


# Queues and index of a DLedger store are ordinary, and its log is read; of several logs one has to be given.
_LISTED = READABLE | {Content.DLEDGER_LOGS}
_PARTS = {tree.COMMITLOG: Part.LOG, tree.CONSUMEQUEUE: Part.QUEUES, tree.INDEX: Part.INDEX, tree.CONFIG: Part.TABLES}


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """Index files, oldest first; without a layout if neither files nor settings determine it."""

    files: tuple[SizedFile, ...]
    layout: IndexLayout | None


def log_target(path: Path, settings: StoreSettings) -> LogTarget:
    """Return the segments of a store, of commitlog/ or dledger-*/data, or one file."""
    if path.is_dir():
        is_store = path.joinpath(tree.COMMITLOG).is_dir() or path.joinpath(tree.CONSUMEQUEUE).is_dir()
        segments = () if is_store else files.find_segments(path)
        if not segments:
            return _log_of_store(_store("commitlog", path, settings), settings)
        _refuse_other_kind("commitlog", segments[0].path)
        return LogTarget(_with_formats(segments), infer_segment_bytes(segments, settings))
    _refuse_other_kind("commitlog", path)
    size_bytes = path.stat().st_size
    base = tree.parse_offset_file_name(path.name)
    if base is not None:
        beside = files.find_segments(path.resolve().parent)
        single = _with_formats((OffsetFile(path, base, size_bytes),))
        return LogTarget(single, infer_segment_bytes(beside, settings))
    with mapped_view(path) as view:
        base = first_byte_number(view)
    if base is None:
        raise click.UsageError(
            f"{path} contains no message and does not have the name of a segment; give a segment of a commit log"
        )
    return LogTarget(_with_formats((OffsetFile(path, base, size_bytes),)), size_bytes)


def _log_of_store(store: StoreFiles, settings: StoreSettings) -> LogTarget:
    """Return the log of a store, up to its committed end if DLedger replicates it."""
    check_log_is_there(one_log(store))
    for segment in store.segments[:1]:
        _refuse_other_kind("commitlog", segment.path)
    end = committed_end(store)
    return LogTarget(store.segments, infer_segment_bytes(store.segments, settings), end, uncommitted_tail(store, end))


def one_log(store: StoreFiles) -> StoreFiles:
    """Return the store; raise `UsageError` if it contains the logs of several DLedger members."""
    members = [name for name, segments in store.dledger_segments.items() if segments]
    if len(members) > 1:
        raise click.UsageError(
            f"{store.root} contains the logs of several DLedger members ({', '.join(members)});"
            f" give one of them, such as {store.root / members[0] / tree.DLEDGER_DATA}"
        )
    return store


def _with_formats(segments: tuple[OffsetFile, ...]) -> tuple[OffsetFile, ...]:
    """Set the format of files that were given without their store: that of DLedger if one begins with an entry."""
    for segment in segments:
        if holds_data(segment.path):
            with mapped_view(segment.path) as view:
                is_dledger = isinstance(read_entry_at(view, 0), DLedgerEntry)
            if is_dledger:
                return tuple(replace(one, log_format=LogFormat.DLEDGER) for one in segments)
    return segments


def queue_target(path: Path, settings: StoreSettings) -> QueueTarget:
    """Return the queues of a store, of consumequeue/, of a topic's or a queue's directory, or one file."""
    if path.is_file():
        _refuse_other_kind("consumequeue", path)
        resolved = path.resolve()
        base = tree.parse_offset_file_name(path.name)
        single = OffsetFile(path, base or 0, path.stat().st_size)
        beside = files.find_segments(resolved.parent) if base is not None else (single,)
        return QueueTarget((_queue_source(resolved.parent, (single,)),), infer_queue_file_bytes(beside, settings))
    queues = tuple(_queues_below(path, settings))
    for queue in queues[:1]:
        for file in queue.files[:1]:
            _refuse_other_kind("consumequeue", file.path)
    every_file = [file for queue in queues for file in queue.files]
    return QueueTarget(queues, infer_queue_file_bytes(every_file, settings))


def _queue_source(directory: Path, queue_files: tuple[OffsetFile, ...]) -> QueueSource:
    queue_id = tree.parse_queue_id(directory.name)
    return QueueSource(None if queue_id is None else directory.parent.name, queue_id, queue_files)


def _queues_below(path: Path, settings: StoreSettings) -> list[QueueSource]:
    if path.joinpath(tree.CONSUMEQUEUE).is_dir():
        store = _store("consumequeue", path, settings)
        file_bytes = settings.value(QUEUE_FILE_BYTES)
        # Queues in RocksDB are copied into files, which are deleted when the command ends.
        readable = click.get_current_context().with_resource(with_queue_files(store, file_bytes))
        table = readable[0].queues
    elif own := files.find_segments(path):
        return [_queue_source(path.resolve(), own)]
    else:
        topic_queues = files.find_topic_queues(path.resolve())
        table = {key: queue_files for key, queue_files in topic_queues.items() if queue_files}
        table = table or files.find_queues(path) or _store("consumequeue", path, settings).queues
    return [QueueSource(topic, queue_id, queue_files) for (topic, queue_id), queue_files in table.items()]


def index_target(path: Path, settings: StoreSettings) -> IndexTarget:
    if path.is_file():
        _refuse_other_kind("index", path)
        single = SizedFile(path, path.stat().st_size)
        beside = files.find_index_files(path.resolve().parent) or (single,)
        return IndexTarget((single,), infer_index_layout(beside, settings))
    index_files = files.find_index_files(path) or _store("index", path, settings).index_files
    return IndexTarget(index_files, infer_index_layout(index_files, settings))


def checkpoint_target(path: Path) -> Path | None:
    """Return the checkpoint file, or None if the store has none."""
    if path.is_file():
        _refuse_other_kind("checkpoint", path)
        return path
    checkpoint = _store("checkpoint", path).checkpoint
    return checkpoint.path if checkpoint else None


def config_target(path: Path) -> list[tuple[Path, Path | None]]:
    """Return each config file, which may be missing, with its backup or None."""
    if path.is_file():
        _refuse_other_kind("config", path)
        backup = path.with_name(path.name + tree.BACKUP_SUFFIX)
        return [(path, backup if backup.is_file() else None)]
    if path.joinpath(tree.CONFIG).is_dir():
        directory, found = path / tree.CONFIG, _store("config", path).config_files
    else:
        directory, found = path, files.find_config_files(path)
    by_name = {file.path.name: file.path for file in found}
    stored = {name for name in ROCKSDB_FILES if stored_table(directory / name) is not None}
    names = sorted({name.removesuffix(tree.BACKUP_SUFFIX) for name in by_name} | stored)
    if directory == path and not CONFIG_CODECS.keys() & set(names):
        _store("config", path)  # a store without config/ has no tables; any other path raises
        return []
    return [(directory / name, by_name.get(name + tree.BACKUP_SUFFIX)) for name in names]


def timer_log_target(path: Path) -> tuple[OffsetFile, ...]:
    if path.is_file():
        _refuse_other_kind("timerlog", path)
        return (OffsetFile(path, tree.parse_offset_file_name(path.name) or 0, path.stat().st_size),)
    log_files = () if path.joinpath(tree.COMMITLOG).is_dir() else files.find_segments(path)
    log_files = log_files or _store("timerlog", path).timer_log
    for file in log_files[:1]:
        _refuse_other_kind("timerlog", file.path)
    return log_files


def timer_wheel_target(path: Path) -> tuple[Path | None, Path | None]:
    """Return the timer wheel and the timer checkpoint, None for a missing one."""
    if path.is_file():
        _refuse_other_kind("timerwheel", path)
        return path, None
    store = _store("timerwheel", path)
    checkpoints = [file.path for file in store.config_files if file.path.name == TIMER_CHECKPOINT_FILE]
    return store.timer_wheel.path if store.timer_wheel else None, next(iter(checkpoints), None)


def _store(wanted: str, path: Path, settings: StoreSettings | None = None) -> StoreFiles:
    """List the files of a store; `wanted` is the kind of file, which is also its name in the store."""
    try:
        store = files.find_store_files(path, settings)
    except StoreLayoutError as error:
        entries = sorted(path.iterdir()) if path.is_dir() else []
        if all(entry.is_file() for entry in entries):  # one directory of a store, not a store
            for first in entries[:1]:
                _refuse_other_kind(wanted, first, shown=path)
        raise click.UsageError(str(error)) from error
    for obstacle in find_obstacles(path):
        if not obstacle.parts & _PARTS.get(wanted, NO_PART) or obstacle.content in _LISTED:
            continue
        if obstacle.content in IN_ROCKSDB:
            refuse_without_binding(obstacle.path)
            continue
        warn(f"not shown: {obstacle}")
    for entry in store.foreign:
        if entry.path == path / wanted:
            raise click.UsageError(f"{entry.path} {entry.reason}")
        if entry.path.is_relative_to(path / wanted) or not entry.path.is_relative_to(path):
            warn(f"{entry.path} {entry.reason}")
    return store


def _refuse_other_kind(wanted: str, path: Path, *, shown: Path | None = None) -> None:
    with mapped_view(path) as view:
        kind = other_kind(wanted, path, view)
    if kind is not None:
        actual = f"{path} looks like {DESCRIPTIONS[kind]}"
        raise WrongUse(f"{actual}, not {DESCRIPTIONS[wanted]}: use `orbitlog dump {kind} {shown or path}`")
