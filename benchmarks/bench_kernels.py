"""A segment at a time, one core: the kernels beside a plain read of the file and a naive struct loop."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np

from benchmarks.make_log import make_segment
from benchmarks.measure import Figure, Report, best_of
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.derived.index_layout import IndexLayout
from orbitlog.kernels.arrow_batches import SCHEMA, ArrowDecoder
from orbitlog.kernels.columns import HeaderColumns, fill_columns
from orbitlog.kernels.dispatch import DispatchScan
from orbitlog.kernels.index_build import IndexBuilder
from orbitlog.kernels.queue_build import QueueBuilder
from orbitlog.kernels.record_walk import OUTPUT_FULL, SourceBytes, count_records
from orbitlog.kernels.splits import walk_in_splits

_PREFIX = struct.Struct(">iIiiiqqiq8sq8siqi")
_LARGE = {"tags", "keys", "unique_key", "properties", "born_host_raw", "store_host_raw"}
RAW_COLUMNS = [name for name in SCHEMA.names if name not in _LARGE]


def run(report: Report, directory: Path, *, body_bytes: int, segment_bytes: int) -> None:
    path = directory / f"bodies-{body_bytes}-{segment_bytes}" / f"{0:020d}"
    messages = make_segment(path, body_bytes=body_bytes, segment_bytes=segment_bytes)
    group = f"a segment of {segment_bytes >> 20} MiB, {body_bytes} B bodies, one core, warm page cache"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with memoryview(mapped) as view:
            rows = [
                ("baseline: read", lambda: plain_read(path)),
                ("baseline: struct loop", lambda: struct_loop(view)),
                ("header scan", lambda: header_scan(view, check_crc=False)),
                ("header scan with CRC", lambda: header_scan(view, check_crc=True)),
                (
                    "splits of 16 MiB, found and validated",
                    lambda: walk_in_splits(view, 16 << 20, base_physical_offset=0),
                ),
                ("all header fields into columns", lambda: header_fields(view, check_crc=False)),
                ("all header fields, with CRC", lambda: header_fields(view, check_crc=True)),
                ("Arrow: fields, topic, properties, body", lambda: arrow(view, RAW_COLUMNS)),
                ("Arrow: every column, with the property map", lambda: arrow(view, SCHEMA.names)),
                ("Arrow: topic, queue and offsets alone", lambda: arrow(view, SCHEMA.names[:5])),
                ("dispatch columns", lambda: dispatch(view, check_crc=False)),
                ("dispatch columns with CRC", lambda: dispatch(view, check_crc=True)),
                ("ConsumeQueue files in memory", lambda: build_queues(view)),
                ("IndexFile in memory", lambda: build_index(view, messages)),
            ]
            for name, work in rows:
                if name != "baseline: struct loop":
                    work()  # compiles, or loads what was compiled
                rounds = 1 if name == "baseline: struct loop" else 5
                report.add(Figure(group, name, best_of(work, rounds), messages, segment_bytes))


def plain_read(path: Path) -> None:
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def struct_loop(view: memoryview) -> int:
    """Decode fields, body, topic and properties of each record, trusting every length."""
    position = count = 0
    while True:
        fields = _PREFIX.unpack_from(view, position)
        if fields[1] != 0xDAA320A7:
            return count
        body_end = position + 88 + fields[14]
        topic_end = body_end + 1 + view[body_end]
        bytes(view[position + 88 : body_end])
        bytes(view[body_end + 1 : topic_end])
        bytes(view[topic_end + 2 : position + fields[0]])
        position += fields[0]
        count += 1


def header_scan(view: memoryview, *, check_crc: bool) -> None:
    source = SourceBytes(view, 0)
    count_records(source.address, 0, len(source), len(source), 0, True, 0, check_crc)


def header_fields(view: memoryview, *, check_crc: bool) -> None:
    source = SourceBytes(view, 0)
    columns = HeaderColumns.allocate(8192)
    position, why = 0, OUTPUT_FULL
    while why == OUTPUT_FULL:
        _, position, why = fill_columns(
            source.address, position, len(source), len(source), 0, True, 0, check_crc, columns
        )


def arrow(view: memoryview, columns: list[str]) -> None:
    for _ in ArrowDecoder(columns).decode(view, base_physical_offset=0, check_crc=False):
        pass


def dispatch(view: memoryview, *, check_crc: bool) -> None:
    for _ in DispatchScan(DeriveRules()).scan(view, base_physical_offset=0, check_crc=check_crc):
        pass


def build_queues(view: memoryview) -> None:
    files: dict[tuple[int, int], np.ndarray] = {}
    queues = QueueBuilder(6_000_000, lambda code, base: files.setdefault((code, base), np.zeros(6_000_000, np.uint8)))
    for columns in DispatchScan(DeriveRules()).scan(view, base_physical_offset=0):
        queues.add(columns)


def build_index(view: memoryview, messages: int) -> None:
    layout = IndexLayout(5_000_000, max(3 * messages + 2, 2))
    index = IndexBuilder(layout, lambda time: np.zeros(layout.file_bytes, np.uint8))
    for columns in DispatchScan(DeriveRules()).scan(view, base_physical_offset=0):
        index.add(columns)
