"""Store contents: decides what a store directory contains, and refuses what Orbitlog does not understand.

One function, `find_obstacles`, looks at a directory and returns everything in it that the engine, the doctor or Spark
cannot read or keep in step: a DLedger log, RocksDB data, batch queues, compacted topics, tiered storage, a replica of a
controller group, unknown directories with data, a newer layout. Writers call `refuse_writing` before they change a
byte, readers call `refuse_reading` with the parts they need. Nothing here writes.

The listing is shallow, because a broker asks at every start: a few directories and one search in `topics.json`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from pathlib import Path
from typing import TypeVar

from orbitlog.errors import FormatError, StoreLayoutError, StoreLinkError
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.checkpoint import CHECKPOINT
from orbitlog.formats.records.message import MAGIC_V1, MAGIC_V2, RECORD_START
from orbitlog.formats.tables.config_files import choose_config
from orbitlog.formats.tables.json_records import JsonFile, JsonRecord
from orbitlog.formats.tables.topic_config import TOPIC_QUEUE_MAPPING, TOPICS, TopicQueueMapping
from orbitlog.settings.store_settings import DLEDGER_PATH
from orbitlog.storefiles.disk import DirectoryEntry, Disk, RealDisk, disk_errors
from orbitlog.storefiles.store_paths import StorePaths

R = TypeVar("R", bound=JsonRecord)

_ROCKSDB_MARK = "CURRENT"
_ROCKSDB_TABLES = ("topics", "subscriptionGroups", "consumerOffsets", "rdb")
_ROCKSDB_POP = "kvStore"
_ROCKSDB_STORE = "rocksdbstore"
_COMPACTION = "compaction"
COMPACTION_LOG = f"{_COMPACTION}/compactionLog"
_TIERED_TABLE = "tieredStoreMetadata.json"
_CONTROLLER_FILES = ("epochFileCheckpoint", tree.BROKER_IDENTITY)
_FILE_START_BYTES = 128
_DLEDGER_START = (1).to_bytes(4, "big")
_RECORD_MAGICS = frozenset((MAGIC_V1, MAGIC_V2))
_ENTRIES_LOOKED_AT = 64
_DEPTH_MAX = 4
# Directories of a store, of a file system, or of a broker beside its store. Names with a leading dot belong to tools.
_KNOWN_DIRECTORIES = frozenset(
    (
        tree.COMMITLOG,
        tree.CONSUMEQUEUE,
        tree.CONSUMEQUEUE_EXT,
        tree.BATCH_CONSUMEQUEUE,
        tree.INDEX,
        tree.CONFIG,
        tree.TIMER_LOG,
        _COMPACTION,
        _ROCKSDB_POP,
        _ROCKSDB_STORE,
        "transaction",
        "logs",
        "lost+found",
    )
)
_ROOT_DIRECTORIES = frozenset((tree.COMMITLOG, tree.CONSUMEQUEUE, tree.INDEX, tree.CONFIG, tree.TIMER_LOG))
_ROOT_FILES = frozenset((tree.CHECKPOINT, tree.ABORT, tree.LOCK, tree.TIMER_WHEEL))
# Directories of Orbitlog itself, such as `orbitlog.pipeline`; Java brokers ignore them.
_OWN_PREFIX = "orbitlog."
_SUPPORTED_ATTRIBUTES = {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}
_UNSUPPORTED_ATTRIBUTES = {"message.type": "LITE"}
# A table that contains none of these lists no unsupported topic.
_ATTRIBUTE_MARKS = (*(key.encode() for key in _SUPPORTED_ATTRIBUTES), b"LITE", b"\\u00")


class Part(Flag):
    """Parts of a store that a reader may need."""

    LOG = auto()
    QUEUES = auto()
    INDEX = auto()
    TABLES = auto()


ALL_PARTS = Part.LOG | Part.QUEUES | Part.INDEX | Part.TABLES
NO_PART = Part(0)


class Content(StrEnum):
    """Kinds of content that are not supported."""

    DLEDGER_LOG = "DLedger log"
    DLEDGER_LOGS = "logs of several DLedger members"
    DLEDGER_SEGMENTS = "DLedger data files in a CommitLog directory"
    ROCKSDB_QUEUES = "RocksDB queues"
    ROCKSDB_TABLES = "RocksDB tables"
    ROCKSDB_POP = "RocksDB POP check points"
    ROCKSDB_STORE = "RocksDB index, timers or transactions"
    BATCH_QUEUES = "batch queues"
    COMPACTION = "compacted topics"
    LITE_TOPICS = "lite topics"
    STATIC_TOPICS = "static topics with other queue ids or offsets"
    TIERED_STORAGE = "tiered storage"
    CONTROLLER_REPLICA = "replica of a controller group"
    UNKNOWN_DIRECTORY = "unknown directory"
    UNKNOWN_SEGMENT = "unknown file among segments"
    WRONG_KIND = "a directory where a file belongs, or a file where a directory belongs"
    NEWER_CHECKPOINT = "checkpoint of a newer version"


# The doctor's repair renames segments and replaces damaged checkpoints; a rebuild from a log that
# lacks a segment would lose its units. Queues of lite and static topics are ordinary files; only serving them differs.
REBUILDABLE = frozenset(
    (
        Content.UNKNOWN_DIRECTORY,
        Content.NEWER_CHECKPOINT,
        Content.LITE_TOPICS,
        Content.STATIC_TOPICS,
        Content.WRONG_KIND,
    )
)
REPAIRABLE = REBUILDABLE | {Content.UNKNOWN_SEGMENT}
# Readers whose code takes `log_format` of segments and stops at the committed end (`store_log`).
READABLE = frozenset((Content.DLEDGER_LOG,))
# Derived files of a DLedger log are rebuilt into another directory only: its own broker writes the store.
DERIVABLE = REBUILDABLE | READABLE


# Readers take queues and tables out of RocksDB, or name the package that they need for it.
IN_ROCKSDB = frozenset((Content.ROCKSDB_QUEUES, Content.ROCKSDB_TABLES))
# A check reports batch queues and compacted messages as unchecked and checks everything else.
CHECKABLE = READABLE | IN_ROCKSDB | {Content.BATCH_QUEUES, Content.COMPACTION}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something in a store directory that Orbitlog does not support."""

    content: Content
    path: Path
    what: str
    advice: str
    parts: Part
    """The parts that cannot be read completely; a writer is refused in any case."""

    def __str__(self) -> str:
        return f"{self.path} {self.what}; {self.advice}"


def refuse_writing(
    root: Path,
    disk: Disk | None = None,
    *,
    log_directories: Sequence[Path] | None = None,
    except_for: frozenset[Content] = frozenset(),
) -> None:
    """Raise `StoreLayoutError` if the directory contains anything that a writer could lose or contradict."""
    found = find_obstacles(root, disk, log_directories=log_directories)
    _refuse([one for one in found if one.content not in except_for], "not opened for writing")


def refuse_reading(
    root: Path, parts: Part = ALL_PARTS, disk: Disk | None = None, *, except_for: frozenset[Content] = frozenset()
) -> None:
    """Raise `StoreLayoutError` if any of the needed parts cannot be read completely."""
    found = (one for one in find_obstacles(root, disk) if one.content not in except_for)
    _refuse([one for one in found if one.parts & parts], "not read")


def refuse_given_dledger(paths: StorePaths, disk: Disk) -> None:
    """Raise `StoreLayoutError` if a setting names a DLedger directory outside of the store that has data."""
    given = paths.dledger_given
    if given is not None and _has_data(disk, given):
        what = f"is named by {DLEDGER_PATH.key} and holds a DLedger log, which can be read but not written"
        advice = f"convert it with `orbitlog doctor convert`, or remove {DLEDGER_PATH.key} if the log is obsolete"
        _refuse([Obstacle(Content.DLEDGER_LOG, given, what, advice, ALL_PARTS)], "not opened for writing")


def refuse_unwritable(paths: StorePaths) -> None:
    """Raise `StoreLayoutError` if a directory of the store is mounted read-only or belongs to another user.

    A broker would find that out one file at a time, some of them already changed.
    """
    below = (paths.root / name for name in sorted(_ROOT_DIRECTORIES - {tree.COMMITLOG}))
    for directory in (paths.root, *paths.writable, *below):
        if not directory.is_dir() or os.access(directory, os.W_OK | os.X_OK):
            continue
        if os.statvfs(directory).f_flag & os.ST_RDONLY:
            why, advice = "is on a file system that is mounted read-only", "mount it writable"
        else:
            owner = directory.stat().st_uid
            why, advice = f"belongs to user {owner} and cannot be written to", "run the command as that user"
        raise StoreLayoutError(f"store not opened for writing: {directory} {why}; {advice}")


def refuse_lost_log(paths: StorePaths, disk: Disk) -> None:
    """Raise `StoreLayoutError` if the log is missing although other files refer to messages."""
    if any(entry.size_bytes for directory in paths.log_directories for entry in _list(disk, directory)):
        return
    if _list(disk, paths.root):
        from orbitlog.storefiles.log_references import refuse_missing_log  # most stores have a log, or nothing at all

        refuse_missing_log(paths, disk)


def _refuse(obstacles: list[Obstacle], consequence: str) -> None:
    if obstacles:
        more = len(obstacles) - 1
        others = f" ({more} more: {', '.join(str(one.path) for one in obstacles[1:4])})" if more else ""
        raise StoreLayoutError(f"store {consequence}: {obstacles[0]}{others}")


def find_obstacles(
    root: Path, disk: Disk | None = None, *, log_directories: Sequence[Path] | None = None
) -> Iterator[Obstacle]:
    """Yield everything in a store directory that is not supported; nothing if it is missing or understood."""
    disk = disk or RealDisk()
    with disk_errors(f"listing {root}"):
        entries = _list(disk, root)
        directories = [entry.name for entry in entries if entry.is_directory]
        files = {entry.name for entry in entries if not entry.is_directory}
        yield from _wrong_kinds(root, entries)
        yield from _other_logs(disk, root, directories)
        yield from _rocksdb(disk, root)
        yield from _other_queues(disk, root)
        yield from _other_topics(disk, root)
        yield from _other_modes(disk, root, files)
        yield from _unknown_directories(disk, root, directories)
        for directory in [root / tree.COMMITLOG] if log_directories is None else log_directories:
            yield from _unknown_segments(disk, directory)
            yield from _dledger_segments(disk, directory)
        yield from _newer_checkpoint(disk, root)


def refuse_wrong_kinds(root: Path, disk: Disk) -> None:
    """Raise `StoreLayoutError` if a directory has the name of a file of a store, or a file that of a directory."""
    with disk_errors(f"listing {root}"):
        _refuse(list(_wrong_kinds(root, _list(disk, root))), "not opened for writing")


def _wrong_kinds(root: Path, entries: Sequence[DirectoryEntry]) -> Iterator[Obstacle]:
    for entry in entries:
        if entry.is_link:
            continue  # `store_links` decides about links: the directories that settings name may be some
        if entry.name in (_ROOT_FILES if entry.is_directory else _ROOT_DIRECTORIES):
            is_, has = ("directory", "file") if entry.is_directory else ("file", "directory")
            what = f"is a {is_}, but a store has a {has} of this name"
            yield Obstacle(Content.WRONG_KIND, root / entry.name, what, "move it away", NO_PART)


def _other_logs(disk: Disk, root: Path, directories: list[str]) -> Iterator[Obstacle]:
    members = [name for name in directories if name.startswith(tree.DLEDGER_PREFIX) and _has_data(disk, root / name)]
    for name in members:
        yield Obstacle(
            Content.DLEDGER_LOG,
            root / name,
            "holds a DLedger log, which can be read but not written",
            "convert it with `orbitlog doctor convert`, or serve it with the Java broker that wrote it"
            " (enableDLegerCommitLog=true)",
            ALL_PARTS,
        )
    if len(members) > 1:
        what = f"is one of {len(members)} DLedger directories with data ({', '.join(sorted(members))})"
        advice = "copy the store and keep the directory of the member that the broker ran as (dLegerSelfId)"
        yield Obstacle(Content.DLEDGER_LOGS, root / sorted(members)[0], what, advice, ALL_PARTS)


def _rocksdb(disk: Disk, root: Path) -> Iterator[Obstacle]:
    advice = "serve it with the Java broker that wrote it"
    way_out = f"convert it with `orbitlog doctor convert`, or {advice}"
    queues = root / tree.CONSUMEQUEUE
    if _read_file(disk, queues / _ROCKSDB_MARK) is not None:
        what = "holds ConsumeQueues in RocksDB (storeType=defaultRocksDB), which is not supported yet"
        yield Obstacle(Content.ROCKSDB_QUEUES, queues, what, way_out, Part.QUEUES)
    for name in _ROCKSDB_TABLES:
        if has_rocksdb_data(disk, root / tree.CONFIG / name):
            yield Obstacle(
                Content.ROCKSDB_TABLES,
                root / tree.CONFIG / name,
                "holds broker tables in RocksDB, which is not supported yet",
                f"{way_out}, or move the directory away if the JSON files beside it are the current tables",
                Part.TABLES,
            )
    if has_rocksdb_data(disk, root / _ROCKSDB_POP):
        what = "holds POP check points in RocksDB (popConsumerKVServiceEnable), which is not supported yet"
        yield Obstacle(Content.ROCKSDB_POP, root / _ROCKSDB_POP, what, advice, NO_PART)
    if has_rocksdb_data(disk, root / _ROCKSDB_STORE):
        what = "holds index, timer or transaction data in RocksDB, which is not supported yet"
        yield Obstacle(Content.ROCKSDB_STORE, root / _ROCKSDB_STORE, what, advice, Part.INDEX)


def _other_queues(disk: Disk, root: Path) -> Iterator[Obstacle]:
    batch, table = root / tree.BATCH_CONSUMEQUEUE, root / tree.CONFIG / TOPICS.name
    topics = _topics_by_attribute(disk, root)
    advice = "serve it with the Java broker that wrote it, or delete these topics there first"
    if _has_data(disk, batch):
        what = "holds batch ConsumeQueues (BatchCQ), which are not supported"
        yield Obstacle(Content.BATCH_QUEUES, batch, what, advice, Part.QUEUES)
    elif topics["queue.type"]:
        what = f"lists topic {topics['queue.type'][0]} with a queue.type other than SimpleCQ, which is not supported"
        yield Obstacle(Content.BATCH_QUEUES, table, what, advice, Part.QUEUES)
    if topics["cleanup.policy"]:
        topic = topics["cleanup.policy"][0]
        what = f"lists topic {topic} with a cleanup.policy other than DELETE, which is not supported"
        yield Obstacle(Content.COMPACTION, table, what, advice, Part.QUEUES)
    elif _has_data(disk, root / _COMPACTION, skip_files=True):
        what = "holds messages of compacted topics (cleanup.policy=COMPACTION), which are not supported"
        yield Obstacle(
            Content.COMPACTION, root / _COMPACTION, what, f"{advice}, or move the directory away", Part.QUEUES
        )


def _other_topics(disk: Disk, root: Path) -> Iterator[Obstacle]:
    """Yield tables of topics whose queue files are ordinary, but which no consumer could continue here."""
    advice = "serve it with the Java broker that wrote it, or delete these topics there first"
    lite = _topics_by_attribute(disk, root)["message.type"]
    if lite:
        what = f"lists lite topic {lite[0]} (message.type=LITE), whose consumers are not supported"
        yield Obstacle(Content.LITE_TOPICS, root / tree.CONFIG / TOPICS.name, what, advice, NO_PART)
    path = root / tree.CONFIG / TOPIC_QUEUE_MAPPING.name
    static = _read_table(disk, path, TOPIC_QUEUE_MAPPING)
    moved = [topic for topic, mapping in static.mappings.items() if not _is_plain(mapping)] if static else []
    if moved:
        what = f"maps queues of static topic {moved[0]} to other ids, offsets or brokers, which is not supported"
        yield Obstacle(Content.STATIC_TOPICS, path, what, advice, NO_PART)


def _is_plain(mapping: TopicQueueMapping) -> bool:
    """Return whether each logical queue of a static topic is the physical one of its id, from the first message on."""
    if mapping.total_queue_count != len(mapping.hosted_queues):
        return False
    return all(
        len(items) == 1
        and (items[0].queue_id, items[0].broker_name) == (logical_id, mapping.broker_name)
        and items[0].logic_queue_offset <= 0
        and items[0].start_queue_offset == 0
        and items[0].end_queue_offset < 0
        for logical_id, items in mapping.hosted_queues.items()
    )


def _other_modes(disk: Disk, root: Path, files: set[str]) -> Iterator[Obstacle]:
    # Java's brokers read the backup of a file that they were killed in replacing.
    tables = (root / tree.CONFIG / f"{_TIERED_TABLE}{suffix}" for suffix in ("", tree.BACKUP_SUFFIX))
    tiered = next((path for path in tables if _read_file(disk, path) is not None), None)
    if tiered is not None:
        what = "describes tiered storage: older messages are elsewhere"
        yield Obstacle(
            Content.TIERED_STORAGE, tiered, what, "serve the store with the Java broker that wrote it", ALL_PARTS
        )
    for name in (f"{name}{suffix}" for name in _CONTROLLER_FILES for suffix in ("", tree.BACKUP_SUFFIX)):
        if name in files and _read_file(disk, root / name):
            yield Obstacle(
                Content.CONTROLLER_REPLICA,
                root / name,
                "marks a replica that a controller manages: only its group may write to it",
                "set enableControllerMode=true, or move this file away to serve the store alone for good",
                NO_PART,
            )


def _unknown_directories(disk: Disk, root: Path, directories: list[str]) -> Iterator[Obstacle]:
    for name in directories:
        if name in _KNOWN_DIRECTORIES or name.startswith((".", _OWN_PREFIX, tree.DLEDGER_PREFIX)):
            continue
        if _has_data(disk, root / name):
            # A directory with files named like segments may be a log of a layout that is not known here.
            parts = Part.LOG if _has_data(disk, root / name, named_like_segments=True) else NO_PART
            yield Obstacle(
                Content.UNKNOWN_DIRECTORY,
                root / name,
                "is not a directory that a RocketMQ store contains, and holds data",
                "move it out of the store directory",
                parts,
            )


def _unknown_segments(disk: Disk, directory: Path) -> Iterator[Obstacle]:
    """Yield files between the segments that have another name: a renamed segment would end the log early."""
    for entry in _list(disk, directory):
        is_segment = not entry.is_directory and tree.parse_offset_file_name(entry.name) is not None
        if not is_segment and (_has_data(disk, directory / entry.name) if entry.is_directory else entry.size_bytes):
            yield Obstacle(
                Content.UNKNOWN_SEGMENT,
                directory / entry.name,
                "is among the CommitLog segments and is not named after a physical offset in 20 digits",
                "give it back its name if it is a segment, else move it away",
                NO_PART,
            )


def _dledger_segments(disk: Disk, directory: Path) -> Iterator[Obstacle]:
    """Yield a CommitLog directory whose files have DLedger entries: each record would follow 48 unreadable bytes."""
    for entry in _list(disk, directory):
        if entry.is_directory or not entry.size_bytes or tree.parse_offset_file_name(entry.name) is None:
            continue
        mapped = disk.open_file(directory / entry.name, writable=False)
        try:
            start = mapped.read(0, min(_FILE_START_BYTES, entry.size_bytes))
        finally:
            mapped.close()
        if _is_dledger_entry(start):
            yield Obstacle(
                Content.DLEDGER_SEGMENTS,
                directory,
                "holds data files of a DLedger log, which are no CommitLog segments",
                f"move them to {tree.DLEDGER_PREFIX}<id>/data below the store, and convert it with"
                " `orbitlog doctor convert`",
                ALL_PARTS,
            )
        return  # one file is enough: a log is of one format, or was converted to DLedger in its own directory


def _is_dledger_entry(start: bytes) -> bool:
    """Return whether a file starts with the header of an entry and its record."""
    if not start.startswith(_DLEDGER_START):
        return False
    from orbitlog.formats.records.dledger import ENTRY_HEADER_BYTES

    if len(start) < ENTRY_HEADER_BYTES + RECORD_START.size:
        return False
    return RECORD_START.unpack_from(start, ENTRY_HEADER_BYTES)[1] in _RECORD_MAGICS


def _newer_checkpoint(disk: Disk, root: Path) -> Iterator[Obstacle]:
    raw = _read_file(disk, root / tree.CHECKPOINT) or b""
    if any(raw[CHECKPOINT.size_bytes :]):
        yield Obstacle(
            Content.NEWER_CHECKPOINT,
            root / tree.CHECKPOINT,
            "has fields that Java brokers up to 5.5 do not write: the store is of a newer version or damaged",
            "run `orbitlog doctor check`, which names the bytes; a newer broker may still open it",
            NO_PART,
        )


def unsupported_attributes(attributes: Mapping[str, str]) -> list[str]:
    """Return the attributes of a topic whose value needs queues or files that are not supported."""
    unsupported = [key for key, value in _SUPPORTED_ATTRIBUTES.items() if attributes.get(key, value) != value]
    return unsupported + [key for key, value in _UNSUPPORTED_ATTRIBUTES.items() if attributes.get(key) == value]


def _topics_by_attribute(disk: Disk, root: Path) -> dict[str, list[str]]:
    """Return the topics whose queue type, cleanup policy or message type is not supported."""
    found: dict[str, list[str]] = {key: [] for key in (*_SUPPORTED_ATTRIBUTES, *_UNSUPPORTED_ATTRIBUTES)}
    table = _read_table(disk, root / tree.CONFIG / TOPICS.name, TOPICS, _ATTRIBUTE_MARKS)
    for topic, config in table.topics.items() if table is not None else ():
        for key in unsupported_attributes(config.attributes):
            found[key].append(topic)
    return found


def _read_table(disk: Disk, path: Path, file: JsonFile[R], marks: Sequence[bytes] = (b"",)) -> R | None:
    """Return a table of config/; None if it is missing, or has none of the marks."""
    main, backup = _read_file(disk, path), _read_file(disk, path.with_name(path.name + tree.BACKUP_SUFFIX))
    # Most tables have no mark: a search is a hundred times faster than decoding a large table twice at each start.
    if not any(mark in (raw or b"") for mark in marks for raw in (main, backup)):
        return None
    try:
        chosen = choose_config(main, backup, file.decode)
    except FormatError:
        return None  # the broker reports a table that it cannot read
    return None if chosen is None else chosen.value


def _read_file(disk: Disk, path: Path) -> bytes | None:
    """Return the bytes of a small file; None if it does not exist. A directory may have the name: a topic `CURRENT`."""
    try:
        return disk.read_file(path)
    except (IsADirectoryError, NotADirectoryError, StoreLinkError):  # links are refused or reported elsewhere
        return None


def _list(disk: Disk, directory: Path) -> list[DirectoryEntry]:
    """List a directory; nothing if it is missing or a file has its name, which is for the doctor to report."""
    try:
        return disk.list_directory(directory)
    except NotADirectoryError:
        return []


def has_rocksdb_data(disk: Disk, directory: Path) -> bool:
    """Return whether a RocksDB directory has a table, or a log with an entry; Java creates empty ones at each start."""
    return any(
        entry.name.endswith(".sst") or (re.fullmatch(r"[0-9]+\.log", entry.name) is not None and entry.size_bytes > 0)
        for entry in _list(disk, directory)
        if not entry.is_directory
    )


def _has_data(
    disk: Disk, directory: Path, *, skip_files: bool = False, named_like_segments: bool = False, depth: int = 0
) -> bool:
    """Return whether there is a file with bytes below a directory; looks at a bounded number of entries."""
    entries = _list(disk, directory)
    for entry in entries[:_ENTRIES_LOOKED_AT]:
        if not entry.is_directory:
            is_wanted = not named_like_segments or tree.parse_offset_file_name(entry.name) is not None
            if entry.size_bytes and is_wanted and not skip_files:
                return True
        elif depth < _DEPTH_MAX and _has_data(
            disk, directory / entry.name, named_like_segments=named_like_segments, depth=depth + 1
        ):
            return True
    # Too many or too deep to look at them all: what was not seen counts as data.
    return len(entries) > _ENTRIES_LOOKED_AT and not named_like_segments
