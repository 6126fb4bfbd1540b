"""Table conversion: copies config/ into the new store, RocksDB tables as the JSON files of an ordinary store."""

from __future__ import annotations

from pathlib import Path

from orbitlog.formats import store_tree as tree
from orbitlog.formats.compat import Compat
from orbitlog.jobs.staging import TEMPORARY, put_bytes
from orbitlog.storefiles.config_reading import read_config
from orbitlog.storefiles.confined.regular_files import check_size
from orbitlog.storefiles.disk import Disk
from orbitlog.storefiles.rocksdb.rocksdb_tables import table_documents
from orbitlog.storefiles.store_files import StoreFiles


def convert_tables(disk: Disk, store: StoreFiles, out: Path, state: Path, compat: Compat) -> list[str]:
    """Write config/ of the new store; return the names of its files.

    Raise `StoreLayoutError` for a file that is too large for a table: a part of it would not be the same table.
    """
    target, temporary = out / tree.CONFIG, state / TEMPORARY
    for file in store.config_files:
        check_size(file.path, file.size_bytes)
    written: dict[str, bytes] = {file.path.name: read_config(file.path) for file in store.config_files}
    for name, data in table_documents(store.root / tree.CONFIG, compat).items():
        written[name] = data
        written.pop(name + tree.BACKUP_SUFFIX, None)  # a backup from before the tables moved is older
    for name, data in sorted(written.items()):
        put_bytes(disk, target / name, data, temporary)
    return sorted(written)
