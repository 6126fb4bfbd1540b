"""Stores of Apache RocketMQ 5.5.0 that have tables in RocksDB, one with its queues there too."""

from __future__ import annotations

import tarfile
from pathlib import Path

ARCHIVES = Path(__file__).parent / "rocksdb_stores"
ONE_PER_TABLE, JOINT = "one_per_table", "joint"
"""`storeType=defaultRocksDB`, and `configManagerVersion=v2` with ordinary queues; 24 messages each."""


def unpack_rocksdb_store(name: str, directory: Path) -> Path:
    """Unpack a store below a directory; return its root."""
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(directory)
    # A binding that opened the original has left its own file, which no broker writes.
    for path in (directory / "store").rglob("rocksdict-config.json"):
        path.unlink()
    return directory / "store"
