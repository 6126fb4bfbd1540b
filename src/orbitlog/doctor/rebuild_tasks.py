"""The tasks of a rebuild: each a function of a small description, run by a worker, with its result in a staged file.

A split gives its queue units, sorted by queue, and the hashes of its index keys (`derive`): the log is read once.
Queue files are then put together from slices of the units (`assemble`), and each index file from the keys of its own
splits (`build_index`): which ones, prefix sums over the splits' key counts tell. No message is moved between workers.
Every task may be repeated.
"""

from __future__ import annotations

import os
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import orjson

from orbitlog.doctor.log_splits import LogSplit
from orbitlog.doctor.split_derivation import Units, derive_split
from orbitlog.doctor.staging import TEMPORARY, WholeFiles, begin_writing, whole_file, write_all
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derive import DeriveRules
from orbitlog.formats.index_layout import (
    INDEX_HEADER,
    IndexHeader,
    IndexLayout,
    decode_header,
    encode_empty_header,
    encode_header,
    header_after,
)
from orbitlog.formats.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW
from orbitlog.kernels.index_stream import EntryStream, KeyColumns
from orbitlog.store.disk import disk_errors
from orbitlog.store.mapped_view import mapped_view

SPLITS, NEW, INDEX_PARTS = "splits", "new", "index-parts"
_MAGIC = b"ORBSPLT2"
_HEAD = struct.Struct(">8sIIQQ")  # magic, length of the JSON, CRC of all that follows, messages, keys
_SLOTS_AT_ONCE = 1 << 14


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


def derive(task: DeriveTask) -> dict[str, Any]:
    """Derive a split, or take what an earlier run made of it; reports the derivation and where its units lie."""
    report = read_staged(task.target)
    if report is None:
        derivation, units, keys = derive_split(
            task.split, task.rules, queue_file_bytes=task.queue_file_bytes, check_crc=task.check_crc
        )
        report = derivation.as_report()
        _write_staged(task, report, units, keys)
        report["is_resumed"] = False
    else:
        report["is_resumed"] = True
    return report


def _write_staged(task: DeriveTask, report: dict[str, Any], units: Units, keys: KeyColumns) -> None:
    """Keep report, keys and units; not synced, for a resumed run checks the CRC."""
    told = orjson.dumps(report)
    told = told.ljust(len(told) + -len(told) % 8)  # JSON may end with blanks
    parts: list[Any] = [told, *(column.view(np.uint8).data for column in (*keys, units))]
    crc = 0
    for part in parts:
        crc = crc32(part, crc)
    head = _HEAD.pack(_MAGIC, len(told), crc, len(keys.physical_offset), len(keys.key_hashes))
    with whole_file(task.target, Path(task.staging, TEMPORARY), sync=False) as descriptor:
        position = 0
        for part in (head, *parts):
            write_all(descriptor, part, position)
            position += len(part)


def read_staged(path: Path) -> dict[str, Any] | None:
    """Return the report of a staged split, or None where there is none or a power cut left only a part of it."""
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
    """Read the keys of a staged split."""
    with path.open("rb", buffering=0) as file:
        _, length, _, messages, keys = _HEAD.unpack(file.read(_HEAD.size))
        file.seek(length, os.SEEK_CUR)
        rows = [np.fromfile(file, np.int64, messages) for _ in KeyColumns._fields[:-1]]
        return KeyColumns._make([*rows, np.fromfile(file, np.int32, keys)])


def _keys_bytes(messages: int, keys: int) -> int:
    return 8 * messages * len(KeyColumns._fields[:-1]) + 4 * keys


@dataclass(frozen=True, slots=True)
class QueuePart:
    """Units of a queue file that lie together in a staged split."""

    path: str
    unit_number: int
    unit_count: int
    place: int


@dataclass(frozen=True, slots=True)
class QueueFile:
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


def assemble(task: AssembleTask) -> dict[str, Any]:
    """Write queue files that are not there yet."""
    starts: dict[str, int] = {}
    with disk_errors(f"writing queue files into {task.staging}"), WholeFiles(Path(task.staging, TEMPORARY)) as files:
        for file in task.files:
            directory = tree.queue_directory(file.topic, file.queue_id)
            target = Path(task.staging, NEW, directory, tree.offset_file_name(file.base))
            if not target.exists():
                descriptor = files.begin(target, modified_ms=file.last_timestamp_ms)
                _write_units(descriptor, file, task.queue_file_bytes, starts)
    return {"files": len(task.files)}


def _write_units(descriptor: int, file: QueueFile, queue_file_bytes: int, starts: dict[str, int]) -> None:
    os.ftruncate(descriptor, queue_file_bytes)
    write_all(descriptor, PRE_BLANK_RAW * file.blank_units, 0)
    for part in file.parts:
        if part.path not in starts:
            starts[part.path] = units_position(Path(part.path))
        with Path(part.path).open("rb", buffering=0) as source:
            size_bytes = part.unit_count * ENTRY_BYTES
            units = os.pread(source.fileno(), size_bytes, starts[part.path] + part.unit_number * ENTRY_BYTES)
        assert len(units) == size_bytes
        write_all(descriptor, units, part.place * ENTRY_BYTES)
    begin_writing(descriptor, 0, queue_file_bytes)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """The staged keys of a split, and how much of the log they stand for."""

    path: str
    log_bytes: int


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Build index file `number` from the keys of splits; the first of them holds the key before the file's first."""

    staging: str
    number: int
    layout: IndexLayout
    parts: tuple[KeyPart, ...]
    keys_before: int
    """How many keys of the log lie before the first of the parts."""
    key_count: int

    @property
    def target(self) -> Path:
        return Path(self.staging, INDEX_PARTS, f"{self.number:06d}")


def build_index(task: IndexTask) -> dict[str, Any]:
    """Build one index file unless it is there; reports its header."""
    if not task.target.exists():
        with whole_file(task.target, Path(task.staging, TEMPORARY)) as descriptor:
            os.ftruncate(descriptor, task.layout.file_bytes)
            _fill_index(task, descriptor)
    with task.target.open("rb") as file:
        header = decode_header(file.read(INDEX_HEADER.size_bytes))
    return asdict(header) | {"scanned_bytes": sum(part.log_bytes for part in task.parts)}


def _fill_index(task: IndexTask, descriptor: int) -> None:
    first_key, key_number = task.number * task.layout.capacity, task.keys_before
    stream = EntryStream(task.layout, IndexHeader()) if task.number == 0 else None
    for part in task.parts:
        columns = staged_keys(Path(part.path))
        row = key = 0
        if stream is None:
            if key_number + len(columns.key_hashes) < first_key:
                key_number += len(columns.key_hashes)
                continue
            key = first_key - key_number
            stream, row = _after_key(task, columns, key)
        while row < len(columns.physical_offset) and not stream.is_full:
            place = task.layout.entry_position(stream.header.index_count)
            entries, row, key = stream.put(columns, row, key)
            write_all(descriptor, entries.data, place)
            begin_writing(descriptor, place, len(entries))
        if stream.is_full:
            break
    if stream is not None and stream.header.key_count:
        _write_slots(descriptor, stream)
        write_all(descriptor, encode_header(stream.header), 0)
    elif stream is not None and task.number:
        write_all(descriptor, encode_empty_header(stream.header), 0)


def _after_key(task: IndexTask, columns: KeyColumns, key: int) -> tuple[EntryStream, int]:
    """Begin a file behind another one, whose last key gives the time that this one begins with."""
    row = int(np.searchsorted(columns.key_ends, key, side="left"))
    before = IndexHeader(
        end_timestamp_ms=int(columns.store_timestamp_ms[row]), end_physical_offset=int(columns.physical_offset[row])
    )
    return EntryStream(task.layout, header_after(before)), row


def _write_slots(descriptor: int, stream: EntryStream) -> None:
    """Write the slots in use; where none is, the file stays a hole."""
    for start in range(0, len(stream.slots), _SLOTS_AT_ONCE):
        slots = stream.slots[start : start + _SLOTS_AT_ONCE]
        if slots.any():
            position = INDEX_HEADER.size_bytes + start * slots.itemsize
            write_all(descriptor, slots.astype(">i4").data.cast("B"), position)
