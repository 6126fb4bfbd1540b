"""A DLedger log beside an ordinary log of the same messages: scans by kernels, and a rebuild of all derived files.

Both logs are one file, read from the page cache in turns, so that other load meets both. The ratio is that of the times
for the same messages; the DLedger log has 48 bytes more for each.
"""

from __future__ import annotations

import mmap
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.make_log import make_segment
from benchmarks.measure import Figure, Reading, Report, seconds_of
from orbitlog.formats.derived.derive import DeriveRules
from orbitlog.formats.records.dledger import (
    ENTRY_HEADER,
    ENTRY_HEADER_BYTES,
    FILE_END_BYTES,
    INDEX_FILE_BYTES_DEFAULT,
    encode_file_end,
)
from orbitlog.formats.records.log_format import LogFormat
from orbitlog.formats.records.message import RECORD_PREFIX
from orbitlog.jobs.local_runner import run_here
from orbitlog.jobs.log_splits import SPLIT_BYTES_DEFAULT
from orbitlog.jobs.rebuild.store_rebuild import rebuild_with
from orbitlog.kernels.dispatch import DispatchScan
from orbitlog.kernels.record_walk import SourceBytes, count_records, walk_messages
from orbitlog.kernels.row_dtypes import ENTRY_UNIT_DTYPE
from orbitlog.settings.store_settings import StoreSettings

ROUNDS = 5
RATIO_MAX = 1.2
_PAGE_BYTES = 4096
_SETTINGS = StoreSettings({"compat": "5.5"})
_OFFSET_AT = RECORD_PREFIX.position("physical_offset")
_LONG = struct.Struct(">q")

Work = Callable[[LogFormat], object]


def run(report: Report, directory: Path, *, body_bytes: int, segment_bytes: int) -> None:
    root = directory / f"dledger-{body_bytes}-{segment_bytes}"
    plain = root / "ordinary" / "commitlog" / f"{0:020d}"
    messages = make_segment(plain, body_bytes=body_bytes, segment_bytes=segment_bytes)
    plain.with_suffix(".count").rename(root / "count")  # not a file of a store
    data = _make_entries(plain, root / "replicated")
    group = f"DLedger log beside an ordinary one of {segment_bytes >> 20} MiB, {body_bytes} B bodies, one core"
    files = {LogFormat.ORDINARY: plain, LogFormat.DLEDGER: data}
    with _mapped(files[LogFormat.ORDINARY]) as ordinary, _mapped(files[LogFormat.DLEDGER]) as replicated:
        views = {LogFormat.ORDINARY: memoryview(ordinary), LogFormat.DLEDGER: memoryview(replicated)}
        rows: dict[str, Work] = {
            "header scan": lambda log_format: _scan(views[log_format], log_format, check_crc=False),
            "header scan with CRC": lambda log_format: _scan(views[log_format], log_format, check_crc=True),
            "dispatch columns": lambda log_format: _dispatch(views[log_format], log_format),
        }
        for name, work in rows.items():
            _compare(report, group, name, work, messages, files)
        for view in views.values():
            view.release()
    stores = {LogFormat.ORDINARY: root / "ordinary", LogFormat.DLEDGER: root / "replicated"}
    rebuild = "rebuild of queues, index and checkpoint"
    _compare(report, group, rebuild, lambda log_format: _rebuild(stores[log_format], root / "out"), messages, files)
    shutil.rmtree(root)


def _compare(report: Report, group: str, name: str, work: Work, messages: int, files: dict[LogFormat, Path]) -> None:
    """Run the work over both logs in turns, and report the best rounds and their ratio."""
    best: dict[LogFormat, float] = {}
    for log_format in files:
        work(log_format)  # compiles, or loads what was compiled
    for _ in range(ROUNDS):
        for log_format in files:
            seconds = seconds_of(lambda log_format=log_format: work(log_format))  # type: ignore[misc]
            best[log_format] = min(best.get(log_format, seconds), seconds)
    for log_format, path in files.items():
        report.add(Figure(group, f"{name}, {log_format}", best[log_format], messages, path.stat().st_size))
    ratio = best[LogFormat.DLEDGER] / best[LogFormat.ORDINARY]
    report.read(Reading(group, f"{name}: time, DLedger / ordinary", ratio, "times", RATIO_MAX))


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _scan(view: memoryview, log_format: LogFormat, *, check_crc: bool) -> None:
    source = SourceBytes(view, 0, log_format)
    count_records(source.address, 0, len(source), len(source), 0, True, source.header_bytes, check_crc)


def _dispatch(view: memoryview, log_format: LogFormat) -> None:
    for _ in DispatchScan(DeriveRules()).scan(view, base_physical_offset=0, log_format=log_format):
        pass


def _rebuild(store: Path, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    (made,) = rebuild_with(run_here, [store], out=out, settings=_SETTINGS, split_bytes=SPLIT_BYTES_DEFAULT)
    if not made.is_published:
        raise RuntimeError(f"{store} could not be rebuilt: {made.findings[0]}")


def _make_entries(plain: Path, root: Path) -> Path:
    """Write the messages of a segment as entries, with their index units and checkpoint; return the data file."""
    ledger = root / "dledger-n0"
    for name in ("data", "index"):
        (ledger / name).mkdir(parents=True, exist_ok=True)
    with _mapped(plain) as mapped, memoryview(mapped) as view:
        positions = walk_messages(view, base_physical_offset=0, check_crc=False).positions.tolist()
        sizes = [int.from_bytes(view[position : position + 4], "big") for position in positions]
        end = sum(sizes) + ENTRY_HEADER_BYTES * len(sizes)
        file_bytes = -(-(end + FILE_END_BYTES) // _PAGE_BYTES) * _PAGE_BYTES
        units = np.zeros(len(sizes), ENTRY_UNIT_DTYPE)
        place = 0
        with (ledger / "data" / f"{0:020d}").open("wb") as file:
            for number, (position, size) in enumerate(zip(positions, sizes, strict=True)):
                record = bytearray(view[position : position + size])
                _LONG.pack_into(record, _OFFSET_AT, place + ENTRY_HEADER_BYTES)
                entry_bytes = ENTRY_HEADER_BYTES + size
                file.write(ENTRY_HEADER.struct.pack(1, entry_bytes, number, 1, place, 0, 0, 0, size))
                file.write(record)
                units[number] = (1, place, entry_bytes, number, 1)
                place += entry_bytes
            file.write(encode_file_end(file_bytes - place))
    with (ledger / "index" / f"{0:020d}").open("wb") as file:
        file.write(units.tobytes())
        file.truncate(max(INDEX_FILE_BYTES_DEFAULT, units.nbytes))
    (ledger / "checkpoint").write_text(f"committedIndex={len(sizes) - 1}\nendIndex={len(sizes) - 1}\n")
    return ledger / "data" / f"{0:020d}"
