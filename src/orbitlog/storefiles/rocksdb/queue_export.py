"""Queue export: writes the units of ConsumeQueues in RocksDB into temporary queue files, for readers of files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from orbitlog.errors import DiskFull
from orbitlog.formats import store_tree as tree
from orbitlog.formats.derived.queue_entry import ENTRY_BYTES, PRE_BLANK_RAW
from orbitlog.storefiles.disk import RealDisk
from orbitlog.storefiles.rocksdb.databases import open_database
from orbitlog.storefiles.rocksdb.rocksdb_queues import StoredUnit, iterate_units, queue_database
from orbitlog.storefiles.store_files import StoreFiles, find_queues


@contextmanager
def with_queue_files(store: StoreFiles, queue_file_bytes: int) -> Iterator[tuple[StoreFiles, Path]]:
    """Yield the store with its queue files, and the directory that they are below; the root if queues are files."""
    database = queue_database(store.root)
    if database is None:
        yield store, store.root
        return
    with tempfile.TemporaryDirectory(prefix="orbitlog-queues-") as temporary:
        export_queues(database, Path(temporary), queue_file_bytes)
        yield replace(store, queues=find_queues(Path(temporary) / tree.CONSUMEQUEUE)), Path(temporary)


def export_queues(database: Path, target: Path, queue_file_bytes: int) -> None:
    """Write queue files below `target`, with the names that they would have in a store.

    Raise `DiskFull` if they need half of the room there: a unit of 30 bytes may have a file of megabytes before it.
    """
    disk, left_bytes = RealDisk(), shutil.disk_usage(target).free // 2
    with open_database(database) as opened:
        units = iterate_units(opened)
        for (topic, queue_id, base), of_file in groupby(units, lambda unit: _file_of(unit, queue_file_bytes)):
            directory = target / tree.queue_directory(topic, queue_id)
            is_first = not directory.exists()
            disk.make_directory(directory, durable=False)
            file = disk.create_plain(directory / tree.offset_file_name(base))
            try:
                for position, raw in _runs(of_file, base, fills=is_first):
                    left_bytes -= len(raw)
                    if left_bytes < 0:
                        raise DiskFull(f"the queues of {database} need more than half of the room in {target}")
                    file.write(position, raw)
                file.resize(queue_file_bytes)
            finally:
                file.close()


def _file_of(unit: StoredUnit, queue_file_bytes: int) -> tuple[str, int, int]:
    position = unit.queue_offset * ENTRY_BYTES
    return unit.topic, unit.queue_id, position - position % queue_file_bytes


def _runs(units: Iterator[StoredUnit], base: int, *, fills: bool) -> Iterator[tuple[int, bytes]]:
    """Yield positions in a file and the adjacent units there; with `fills`, fillers before the first.

    RocksDB drops the units of expired messages; in a file fillers are in their places.
    """
    start, run = 0, bytearray()
    for unit in units:
        position = unit.queue_offset * ENTRY_BYTES - base
        if position != start + len(run):
            if fills and not run:
                run += PRE_BLANK_RAW * (position // ENTRY_BYTES)
            else:
                yield start, bytes(run)
                start, run = position, bytearray()
        run += unit.raw
    yield start, bytes(run)
