"""The tasks of a rebuild: each a function of a small description, run by a worker, with its result in a staged file.

A split gives its queue units, sorted by queue, and the hashes of its index keys (`derive`): the log is read once.
Queue files are then put together from slices of the units (`assemble`), and index files from the hashes
(`jobs.rebuild.index_tasks`). No message is moved between workers. Every task may be repeated.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import orjson

from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW
from orbitlog.jobs.log_splits import LogSplit
from orbitlog.jobs.split_derivation import Units, derive_split
from orbitlog.jobs.staging import TEMPORARY, WholeFiles, sync_directories, whole_file
from orbitlog.kernels.arrays import np
from orbitlog.kernels.index_stream import KeyColumns
from orbitlog.storefiles.disk import Disk, PlainFile, RealDisk, disk_errors
from orbitlog.storefiles.mapped_view import mapped_view

SPLITS, NEW = "splits", "new"
_MAGIC = b"ORBSPLT2"
_SPLITS_OPEN_MAX = 200
_HEAD = struct.Struct(">8sIIQQ")  # magic, length of the JSON, CRC of all that follows, messages, keys


@dataclass(frozen=True, slots=True)
class DeriveTask:
    """Derive one split; `staging` is the directory of the store's rebuild."""

    split: LogSplit
    staging: str
    rules: DeriveRules
    queue_file_bytes: int
    check_crc: bool

    @property
    def target(self) -> Path:
        split = self.split
        first = "" if split.first is None else f"-{split.first}"
        return Path(self.staging, SPLITS, f"{split.base:020d}-{split.start:010d}{first}")


def derive(task: DeriveTask, *, disk: Disk | None = None) -> dict[str, Any]:
    """Derive a split, or read the result of an earlier run; reports the derivation and the position of its units."""
    report = read_staged(task.target)
    if report is None:
        derivation, units, keys = derive_split(
            task.split, task.rules, queue_file_bytes=task.queue_file_bytes, check_crc=task.check_crc
        )
        report = derivation.as_report()
        _write_staged(disk or RealDisk(), task, report, units, keys)
        report["is_resumed"] = False
    else:
        report["is_resumed"] = True
    return report


def _write_staged(disk: Disk, task: DeriveTask, report: dict[str, Any], units: Units, keys: KeyColumns) -> None:
    """Keep report, keys and units; not synced, because a resumed run checks the CRC."""
    encoded = orjson.dumps(report)
    encoded = encoded.ljust(len(encoded) + -len(encoded) % 8)  # JSON may end with blanks
    parts: list[Any] = [encoded, *(column.view(np.uint8).data for column in (*keys, units))]
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    head = _HEAD.pack(_MAGIC, len(encoded), crc, len(keys.physical_offset), len(keys.key_hashes))
    with whole_file(disk, task.target, Path(task.staging, TEMPORARY), sync=False) as file:
        position = 0
        for part in (head, *parts):
            file.write(position, part)
            position += len(part)


def read_staged(path: Path) -> dict[str, Any] | None:
    """Return the report of a staged split; None if it is missing, or if a power cut left only a part of it."""
    if not path.exists():
        return None
    with mapped_view(path) as view:
        if len(view) < _HEAD.size:
            return None
        magic, length, crc, _, _ = _HEAD.unpack_from(view)
        if magic != _MAGIC or crc32(view[_HEAD.size :]) != crc:
            return None
        report: dict[str, Any] = orjson.loads(view[_HEAD.size : _HEAD.size + length])
    return report


def units_position(path: Path) -> int:
    """Return where the units of a staged split begin."""
    with path.open("rb") as file:
        _, length, _, messages, keys = _HEAD.unpack(file.read(_HEAD.size))
    return int(_HEAD.size + length + _keys_bytes(messages, keys))


def staged_keys(path: Path) -> KeyColumns:
    """Map the keys of a staged split, for as long as the columns are kept."""
    with path.open("rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # kernels are compiled for writable arrays
    _, length, _, messages, keys = _HEAD.unpack_from(mapping)
    start, column_bytes = _HEAD.size + length, 8 * messages
    starts = [start + number * column_bytes for number in range(len(KeyColumns._fields))]
    rows = [np.frombuffer(mapping, np.int64, messages, start) for start in starts[:-1]]
    return KeyColumns._make([*rows, np.frombuffer(mapping, np.int32, keys, starts[-1])])


def _keys_bytes(messages: int, keys: int) -> int:
    return 8 * messages * len(KeyColumns._fields[:-1]) + 4 * keys


class QueuePart(NamedTuple):
    """Units of a queue file that are together in a staged split; a tuple, because there are many, and all are sent."""

    path: str
    unit_number: int
    unit_count: int
    place: int


class QueueFile(NamedTuple):
    """A queue file and the parts that make it; the first `blank_units` only fill room before a queue's first unit."""

    topic: str
    queue_id: int
    base: int
    blank_units: int
    last_timestamp_ms: int
    parts: tuple[QueuePart, ...]


@dataclass(frozen=True, slots=True)
class AssembleTask:
    """Put some queue files together."""

    staging: str
    queue_file_bytes: int
    files: tuple[QueueFile, ...]

    @property
    def cost(self) -> float:
        """About how many microseconds it takes."""
        return sum(500 + 0.007 * sum(part.unit_count for part in file.parts) for file in self.files)


def assemble(task: AssembleTask, *, disk: Disk | None = None) -> dict[str, Any]:
    """Write queue files that do not exist yet, and sync the directories that they are in."""
    disk = disk or RealDisk()
    targets = [_queue_file_target(task.staging, file) for file in task.files]
    temporary = Path(task.staging, TEMPORARY)
    with (
        disk_errors(f"writing queue files into {task.staging}"),
        WholeFiles(disk, temporary) as files,
        _Units() as units,
    ):
        for file, target in zip(task.files, targets, strict=True):
            if not target.exists():
                staged = files.begin(target, modified_ms=file.last_timestamp_ms)
                _write_units(staged, file, task.queue_file_bytes, units)
    # Also those of an earlier run, which may have been killed between its renames and its syncs.
    sync_directories(disk, sorted({target.parent for target in targets}))
    return {"files": len(task.files)}


def _queue_file_target(staging: str, file: QueueFile) -> Path:
    return Path(staging, NEW, tree.queue_directory(file.topic, file.queue_id), tree.offset_file_name(file.base))


def _write_units(staged: PlainFile, file: QueueFile, queue_file_bytes: int, units: _Units) -> None:
    staged.resize(queue_file_bytes)
    staged.write(0, PRE_BLANK_RAW * file.blank_units)
    first, last = file.parts[0], file.parts[-1]
    if last.place + last.unit_count - first.place == sum(part.unit_count for part in file.parts):
        staged.write(first.place * ENTRY_BYTES, b"".join(map(units.read, file.parts)))
    else:
        for part in file.parts:
            staged.write(part.place * ENTRY_BYTES, units.read(part))
    staged.start_writeback(0, queue_file_bytes)


class _Units:
    """Reads units of staged splits, whose files stay open: those of one split go to many queues."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[FileIO, int]] = {}

    def read(self, part: QueuePart) -> bytes:
        if part.path not in self._open:
            if len(self._open) >= _SPLITS_OPEN_MAX:
                self._close()
            file = Path(part.path).open("rb", buffering=0)
            self._open[part.path] = file, units_position(Path(part.path))
        file, start = self._open[part.path]
        size_bytes = part.unit_count * ENTRY_BYTES
        units = os.pread(file.fileno(), size_bytes, start + part.unit_number * ENTRY_BYTES)
        assert len(units) == size_bytes
        return units

    def _close(self) -> None:
        while self._open:
            self._open.popitem()[1][0].close()

    def __enter__(self) -> _Units:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
