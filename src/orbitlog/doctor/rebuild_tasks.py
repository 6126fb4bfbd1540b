"""The tasks of a rebuild: each a function of a small description, run by a worker, with its result in a staged file.

A split gives its queue units, sorted by queue (`derive`). Queue files are then put together from slices of those
(`assemble`), and each index file is built by one scan of its own part of the log (`build_index`): which part, prefix
sums over the splits' key counts tell. No message is moved between workers. Every task may be repeated.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import orjson

from orbitlog.doctor.log_splits import LogSplit
from orbitlog.doctor.split_derivation import Units, derive_split, scanned_bytes
from orbitlog.doctor.staging import TEMPORARY, WholeFiles, whole_file, write_all
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
from orbitlog.kernels.dispatch import DispatchScan
from orbitlog.kernels.index_build import put_into
from orbitlog.store.disk import disk_errors
from orbitlog.store.mapped_view import mapped_view

SPLITS, NEW, INDEX_PARTS = "splits", "new", "index-parts"
_MAGIC = b"ORBSPLT1"
_LENGTHS_BYTES = 8  # of the JSON, and the CRC of all that follows
UNITS_HEAD_BYTES = len(_MAGIC) + _LENGTHS_BYTES


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
        derivation, units = derive_split(
            task.split, task.rules, queue_file_bytes=task.queue_file_bytes, check_crc=task.check_crc
        )
        report = derivation.as_report()
        _write_staged(task, report, units)
        report["is_resumed"] = False
    else:
        report["is_resumed"] = True
    return report


def _write_staged(task: DeriveTask, report: dict[str, Any], units: Units) -> None:
    """Keep report and units; not synced, for a resumed run checks the CRC."""
    head = orjson.dumps(report)
    head = head.ljust(len(head) + -len(head) % 8)  # JSON may end with blanks
    body = units.view(np.uint8).data if len(units) else b""
    crc = crc32(body, crc32(head))
    with whole_file(task.target, Path(task.staging, TEMPORARY), sync=False) as descriptor:
        start = _MAGIC + len(head).to_bytes(4, "big") + crc.to_bytes(4, "big") + head
        write_all(descriptor, start, 0)
        write_all(descriptor, body, len(start))


def read_staged(path: Path) -> dict[str, Any] | None:
    """Return the report of a staged split, or None where there is none or a power cut left only a part of it."""
    if not path.exists():
        return None
    with mapped_view(path) as view:
        if len(view) < UNITS_HEAD_BYTES or view[: len(_MAGIC)] != _MAGIC:
            return None
        length = int.from_bytes(view[8:12], "big")
        if crc32(view[UNITS_HEAD_BYTES:]) != int.from_bytes(view[12:16], "big"):
            return None
        report: dict[str, Any] = orjson.loads(view[UNITS_HEAD_BYTES : UNITS_HEAD_BYTES + length])
    return report | {"units_position": UNITS_HEAD_BYTES + length}


def units_position(path: Path) -> int:
    """Return where the units of a staged split begin."""
    with path.open("rb") as file:
        head = file.read(UNITS_HEAD_BYTES)
    return UNITS_HEAD_BYTES + int.from_bytes(head[8:12], "big")


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


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Build index file `number` from splits; the first of them holds the key before the file's first."""

    staging: str
    number: int
    layout: IndexLayout
    rules: DeriveRules
    splits: tuple[LogSplit, ...]
    keys_before: int
    """How many keys of the log lie before the first of the splits."""

    @property
    def target(self) -> Path:
        return Path(self.staging, INDEX_PARTS, f"{self.number:06d}")


def build_index(task: IndexTask) -> dict[str, Any]:
    """Build one index file unless it is there; reports its header."""
    if not task.target.exists():
        with whole_file(task.target, Path(task.staging, TEMPORARY)) as descriptor:
            os.ftruncate(descriptor, task.layout.file_bytes)
            with mmap.mmap(descriptor, task.layout.file_bytes) as mapping:
                _fill_index(task, mapping)
    with task.target.open("rb") as file:
        header = decode_header(file.read(INDEX_HEADER.size_bytes))
    return asdict(header) | {"scanned_bytes": sum(map(scanned_bytes, task.splits))}


def _fill_index(task: IndexTask, mapping: mmap.mmap) -> None:
    data = np.frombuffer(mapping, np.uint8)
    first_key = task.number * task.layout.capacity
    header = IndexHeader()
    is_begun = task.number == 0
    key = task.keys_before
    scan = DispatchScan(task.rules)
    for split in task.splits:
        with mapped_view(Path(split.path)) as whole, whole[: split.segment_bytes] as view:
            chunks = scan.scan(view, split.first or 0, min(split.stop, len(view)), base_physical_offset=split.base)
            for columns in chunks:
                keys = len(columns.key_hashes)
                row, start = 0, 0
                if not is_begun:
                    if key + keys < first_key:
                        key += keys
                        continue
                    # The last key of the file before this one gives the time that this one begins with.
                    start = first_key - key
                    row = int(np.searchsorted(columns.key_ends, start, side="left"))
                    header = header_after(
                        IndexHeader(
                            end_timestamp_ms=int(columns.store_timestamp_ms[row]),
                            end_physical_offset=int(columns.physical_offset[row]),
                        )
                    )
                    data[: INDEX_HEADER.size_bytes] = np.frombuffer(encode_empty_header(header), np.uint8)
                    is_begun = True
                header, row, start = put_into(data, header, task.layout, columns, row, start)
                if row < len(columns.physical_offset):
                    break
                key += keys
            del chunks
        if header.index_count >= task.layout.entry_count:
            break
    if header.index_count > 1:
        data[: INDEX_HEADER.size_bytes] = np.frombuffer(encode_header(header), np.uint8)
    del data
